"""A patient at a glance: the figures that any dashboard shows, before a single special test."""

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from minivllm import events as ev
from minivllm.lab.faults import Patient
from minivllm.lab.grading import in_short
from minivllm.narrate import count


@dataclass(frozen=True)
class VitalSigns:
    """One run in figures. Shares are between 0 and 1; waits are ticks from arrival to the first token."""

    ticks: int
    came: int
    answered: int
    left: int
    """Aborted before they were answered."""
    unlike: int
    """Requests whose tokens are not those of a healthy engine that is asked the same, alone."""
    error: str | None
    running: int
    """At the end of the run; `waiting` too."""
    waiting: int
    most_running: int
    hits_early: float
    """Prompt tokens found in the cache, by the first half of the requests that were admitted."""
    hits_late: float
    evictions: int
    preemptions: int
    lost: float
    """Computed tokens that a preemption threw away, as a share of all computed."""
    median_wait: float
    """Of those that got a first token."""
    worst_wait: int
    """Of all that came and stayed: whoever waits in the end has waited until then."""
    held: float
    """Of the pool, at the peak."""
    in_use: float
    """Of the slots that were held, over all ticks: those that carry K/V. As a dashboard counts, by references: a lost
    block has one, and is in use."""
    blocks: float
    """Taken per request."""

    def __str__(self) -> str:
        rows = {
            "requests": f"{self.came} came, {self.answered} were answered"
            + (f", {self.left} left" if self.left else "")
            + f" · {self.ticks} ticks",
            "at the end": f"{self.running} run, {self.waiting} wait" + (f" · {self.error}" if self.error else ""),
            "wrong text": f"{self.unlike} of {self.came} differ from what a healthy engine says",
            "prefix cache": f"{self.hits_early:.0%} hits at first, {self.hits_late:.0%} later · "
            f"{self.evictions} evictions",
            "preemptions": f"{self.preemptions}, which lost {self.lost:.0%} of what was computed",
            "first token": f"median {_ticks(self.median_wait)} after arrival · longest wait {_ticks(self.worst_wait)}",
            "pool": f"{self.held:.0%} held at the peak · {self.in_use:.0%} of the held slots in use, on average · "
            f"{self.most_running} at a time · each took {count(round(self.blocks), 'block')}",
        }
        return "\n".join(f"  {name:<13} {text}" for name, text in rows.items())


def vital_signs(patient: Patient) -> VitalSigns:
    """What can be read off a patient after its run."""
    metrics, told = patient.metrics, [event for events in patient.recorder.ticks for event in events]
    admitted = [(e.cached, len(patient.prompts[e.request])) for e in told if isinstance(e, ev.Admit) and not e.resumed]
    half = len(admitted) // 2
    waits = [ticks for ticks, _ in metrics.ttft]
    pool = patient.engine.config.block_size * (patient.engine.config.num_blocks or 0)
    scheduler = patient.engine.scheduler
    return VitalSigns(
        ticks=patient.engine.tick,
        came=len(patient.prompts),
        answered=len({e.request for e in told if isinstance(e, ev.Finish) and e.reason != "abort"}),
        left=metrics.finished["abort"],
        unlike=len(unlike(patient)),
        error=in_short(patient.error) if patient.error else None,
        running=len(scheduler.running),
        waiting=len(scheduler.waiting),
        most_running=max(step.running for step in metrics.steps),
        hits_early=_share(admitted[:half]),
        hits_late=_share(admitted[half:]),
        evictions=metrics.evictions,
        preemptions=metrics.preemptions,
        lost=metrics.lost_tokens / max(1, metrics.computed_tokens),
        median_wait=median(waits),
        worst_wait=max([*waits, *_still_waiting(patient)]),
        held=max(step.held for step in metrics.steps) / pool,
        in_use=metrics.share("used", "held"),
        blocks=sum(isinstance(e, ev.Take) for e in told) / len(patient.prompts),
    )


def unlike(patient: Patient) -> list[str]:
    """Requests whose tokens, as far as they came, are not those of a healthy engine that is asked the same, alone."""
    with patient.twin() as healthy:
        return [
            name for name, tokens in said(patient).items() if healthy.say(patient.prompts[name], len(tokens)) != tokens
        ]


def said(patient: Patient) -> dict[str, list[int]]:
    """The tokens of every request that got any, finished or not."""
    tokens: dict[str, list[int]] = defaultdict(list)
    for events in patient.recorder.ticks:
        for event in events:
            if isinstance(event, ev.Token):
                tokens[event.request].append(event.token)
    return dict(tokens)


def _still_waiting(patient: Patient) -> list[int]:
    """How long those have waited who got no token until the end."""
    came = {
        event.request: tick
        for tick, events in enumerate(patient.recorder.ticks, 1)
        for event in events
        if isinstance(event, ev.Arrive) and not event.generated
    }
    waiting = [request.id for request in patient.engine.scheduler.waiting if request.id not in said(patient)]
    return [patient.engine.tick - came[name] for name in waiting]


def _share(admitted: list[tuple[int, int]]) -> float:
    return sum(cached for cached, _ in admitted) / max(1, sum(prompt for _, prompt in admitted))


def _ticks(n: float) -> str:
    return f"{n:g} tick{'s' * (n != 1)}"

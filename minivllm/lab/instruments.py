"""What a doctor of engines looks through: each instrument finds one kind of fault, and is silent otherwise.

Those here need no torch: they read the bookkeeping, a recording, or token ids. `tensors.py` looks at numbers.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from minivllm import events as ev
from minivllm.core.audit import leaks
from minivllm.engine import Engine
from minivllm.lab.misses import Miss, explain_miss
from minivllm.metrics import Metrics
from minivllm.narrate import count
from minivllm.recorder import Recorder

__all__ = [
    "Miss",
    "broken_prefixes",
    "evicted_too_soon",
    "explain_miss",
    "leak_report",
    "long_tables",
    "overtaken",
    "ping_pong",
    "table_diff",
    "wasted_ends",
    "whole_prompt_hits",
]


def leak_report(engine: Engine) -> list[str]:
    """Blocks with references that no live request explains: memory that will never come back."""
    lost = leaks(engine.scheduler.cache, engine.scheduler.requests.values())
    return [f"block {block}: {count} reference{'s' * (count > 1)} nobody owns" for block, count in sorted(lost.items())]


def table_diff(engine: Engine) -> list[str]:
    """Block tables as the device has them against those of the scheduler. Look between two ticks of `step()`."""
    device = _device_tables(engine.runner)
    wrong = []
    for request in engine.scheduler.running:
        there = device.get(request.id)
        if there is None:
            continue  # it joins with the next plan
        known = -(-request.num_scheduled // engine.config.block_size)
        for index, block in enumerate(request.table[:known]):
            found = there[index] if index < len(there) else None
            if found != block:
                wrong.append(f"{request.id}, logical block {index}: host {block}, device {found}")
    return wrong


def _device_tables(runner: Any) -> dict[str, list[int]]:
    runner = getattr(runner, "runner", runner)  # a TimedRunner's
    if hasattr(runner, "tables"):
        return dict(runner.tables)
    state = getattr(runner, "state", None)
    return {} if state is None else {name: state.tables[seat].tolist() for name, seat in state.seat.items()}


def evicted_too_soon(recording: Recorder) -> list[str]:
    """Blocks whose very content was computed again after it had been evicted: the pool is too small for the traffic."""
    gone: dict[str, int] = {}
    preempted: set[str] = set()  # they recompute for another reason
    found: list[str] = []
    tick = 0
    for event in _all(recording):
        if isinstance(event, ev.Start):
            tick = event.tick
        elif isinstance(event, ev.Evict):
            gone[event.hash] = tick
        elif isinstance(event, ev.Preempt):
            preempted.add(event.request)
        elif isinstance(event, ev.Publish) and event.hash in gone:
            then = gone.pop(event.hash)
            if event.request not in preempted:
                found.append(f"tick {tick}: {event.request} computes block {event.index} again, evicted in tick {then}")
    return found


def whole_prompt_hits(recording: Recorder) -> list[str]:
    """Requests admitted with every token cached: none is left to compute, so there are no logits to sample from."""
    prompts: dict[str, int] = {}
    found = []
    for event in _all(recording):
        if isinstance(event, ev.Arrive):
            prompts[event.request] = event.prompt_tokens
        elif isinstance(event, ev.Admit) and not event.resumed and event.cached >= prompts[event.request]:
            found.append(f"{event.request}: all {event.cached} prompt tokens are cached; the last must be computed")
    return found


def ping_pong(metrics: Metrics, most: float = 0.25) -> list[str]:
    """More than `most` of the computed tokens lost: requests push one another out and recompute what they had."""
    share = metrics.lost_tokens / max(1, metrics.computed_tokens)
    return (
        [f"{count(metrics.preemptions, 'preemption')} lost {share:.0%} of the computed tokens"] if share > most else []
    )


def overtaken(recording: Recorder, most: int = 40) -> list[str]:
    """Requests that more than `most` later ones overtook while they waited: starvation."""
    order: dict[str, int] = {}
    passed: Counter[str] = Counter()
    waiting: dict[str, None] = {}
    for event in _all(recording):
        if isinstance(event, ev.Arrive):
            order[event.request] = len(order)
            waiting[event.request] = None
        elif isinstance(event, ev.Finish):
            waiting.pop(event.request, None)
        elif isinstance(event, ev.Admit) and not event.resumed:
            waiting.pop(event.request, None)
            passed.update(name for name in waiting if order[name] < order[event.request])
    return [f"{name} was overtaken by {count} requests" for name, count in passed.items() if count > most]


def broken_prefixes(prompts: Sequence[Sequence[int]], metrics: Metrics, block_size: int) -> list[str]:
    """Prompts that share most of their text and hit nothing, since an early token differs: dynamic text in front."""
    if metrics.hit_rate > 0.05 or len(prompts) < 2:
        return []
    found = []
    for at, (a, b) in enumerate(pairwise(prompts)):
        shared = {tuple(a[i : i + 8]) for i in range(len(a) - 7)}
        windows = [tuple(b[i : i + 8]) for i in range(len(b) - 7)]
        alike = sum(window in shared for window in windows) / max(1, len(windows))
        index = explain_miss(a, b, block_size).index
        if alike > 0.5 and index is not None and index < 0.1 * len(b):
            found.append(f"prompts {at} and {at + 1} share {alike:.0%} of their text and part at token {index}")
    return found


def wasted_ends(metrics: Metrics, most: float = 0.4) -> list[str]:
    """Blocks so large that more than `most` of what requests hold will never be written: the end of a last block."""
    share = metrics.share("internal", "held")
    return [f"{share:.0%} of the held slots are never used: block_size is too large"] if share > most else []


def long_tables(metrics: Metrics, recording: Recorder, most: int = 32) -> list[str]:
    """Tables of more than `most` blocks on average that gain one with almost every token computed."""
    blocks = Counter(event.request for event in _all(recording) if isinstance(event, ev.Take))
    taken = sum(blocks.values())
    if blocks and taken / len(blocks) > most and taken > metrics.computed_tokens / 4:
        return [
            f"{taken / len(blocks):.0f} blocks taken per request, one per {metrics.computed_tokens / taken:.1f} tokens"
        ]
    return []


def _all(recording: Recorder) -> Iterable[ev.Event]:
    return (event for events in recording.ticks for event in events)

"""The ward: twelve sick engines under numbers, and what is asked of whoever treats one.

    case = Case(3)
    case.run()
    print(case)                  what its owner says, and its vital signs
    case.log(7)                  what happened in a tick
    case.test("leaks")           an instrument; the first is free, each further one costs a point
    case.diagnose(cause="leak", tick=7, cure="release-everything")

A diagnosis earns ten points at most: four for the cause, three more for a tick that shows it, three for the cure. Each
one after the first costs a point too.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from minivllm import events as ev
from minivllm.allowed import one_of, whole
from minivllm.engine import Engine
from minivllm.lab import record
from minivllm.lab.faults import INSTRUMENTS, PATIENTS, admit
from minivllm.lab.predictions import Prediction, predict, reveal
from minivllm.lab.vital_signs import VitalSigns, said, vital_signs
from minivllm.metrics import Metrics
from minivllm.narrate import count, line, until_failure
from minivllm.recorder import Recorder

WARD = (
    "dynamic-prompt", "leak", "starvation", "huge-blocks", "stale-table", "small-pool", "whole-prompt-hit",
    "unmasked-tail", "tiny-blocks", "borrowed-block", "ping-pong", "half-precision-sum",
)  # fmt: skip
NOBODY_HAS = {
    "separate-steps": "A step is prefill or decode, never both, so who is writing stands still while prompts are computed.",
    "small-budget": "max_num_batched_tokens is so small that a prompt takes many ticks.",
    "unchained-hash": "Blocks are named by their own tokens alone, so a past that is not theirs is reused.",
}
WHY_NOT = {
    "separate-steps": "somebody who is writing would get nothing while a prompt is computed, and nobody does",
    "small-budget": "prompts would be computed in pieces, and the log has them whole",
    "unchained-hash": "a block would be hit after another beginning, and none was",
}
CAUSES = dict(sorted((NOBODY_HAS | {name: patient.cause for name, patient in PATIENTS.items()}).items()))
CURES = {patient.treatments[0]: patient.cure for patient in PATIENTS.values()}
CURES |= {"chain-the-hash": "Hash the parent's name with a block's tokens.", "larger-budget": "More tokens per step."}
CURES = dict(sorted(CURES.items()))
CAUSE, TICK, CURE = 4, 3, 3
"""Points for each part of a diagnosis."""
TRAFFIC, BOOKS, NUMBERS = "settings or traffic", "the books", "the numbers"
WINGS = dict.fromkeys(PATIENTS, TRAFFIC)
WINGS |= dict.fromkeys(("leak", "borrowed-block", "whole-prompt-hit", "stale-table"), BOOKS)
WINGS |= dict.fromkeys(("unmasked-tail", "half-precision-sum"), NUMBERS)


class Case:
    """One patient, numbered from 1, and how it was examined. Raises `ValueError` for a number that nobody has."""

    def __init__(self, number: int) -> None:
        self.number = whole("patient", number, 1, len(WARD))
        self._name = WARD[self.number - 1]
        self._patient = admit(self._name)
        self._signs: VitalSigns | None = None
        self._findings: dict[str, list[str]] = {}
        self._told: list[list[ev.Event]] = []
        self._evidence: list[int] = []
        self._said: dict[str, list[int]] = {}
        self._given: list[tuple[str, int, str]] = []
        self.tests: list[str] = []

    @property
    def engine(self) -> Engine:
        """The engine, to be watched from before it runs."""
        return self._patient.engine

    @property
    def recorder(self) -> Recorder:
        """Every event of the engine."""
        return self._patient.recorder

    @property
    def prompts(self) -> dict[str, list[int]]:
        """The token ids that each request came with."""
        return self._patient.prompts

    @property
    def metrics(self) -> Metrics:
        """What the dashboard counted."""
        return self._patient.metrics

    @property
    def complaint(self) -> str:
        """What its owner says."""
        return self._patient.complaint

    @property
    def signs(self) -> VitalSigns:
        """The figures of the run, which is made if it was not yet."""
        self.run()
        assert self._signs is not None
        return self._signs

    def run(self) -> None:
        """Let the traffic come, to its end or to an error; once. What is done to the engine later changes no finding."""
        if self._signs is None:
            self._findings = self._patient.run().examine()
            self._evidence, self._said = self._patient.evidence(), said(self._patient)
            self._told = [list(events) for events in self.recorder.ticks if events]
            self._signs = vital_signs(self._patient)

    def __str__(self) -> str:
        return f"patient {self.number} · “{self.complaint}”\n{self.signs}"

    def said(self, request_id: str) -> list[int]:
        """The tokens that a request got. Raises `ValueError` for one that got none."""
        self.run()
        return self._said[one_of("request", request_id, tuple(self._said))]

    def should_say(self, request_id: str) -> list[int]:
        """What a healthy engine says to the same prompt, as many tokens."""
        tokens = len(self.said(request_id))
        with self._patient.twin() as healthy:
            return healthy.say(self.prompts[request_id], tokens)

    def log(self, first: int, last: int | None = None) -> None:
        """Print what happened in a tick, or from `first` to `last`. Raises `ValueError` for ticks that did not happen."""
        self.run()
        first = whole("first tick", first, 1, len(self._told))
        last = first if last is None else whole("last tick", last, first, len(self._told))
        for tick in range(first, last + 1):
            told, failure = until_failure(self._told[tick - 1])
            print(f"tick {tick}")
            for words in _folded((*told, *([failure] if failure else []))):
                print(f"  {words}")

    def test(self, name: str) -> list[str]:
        """What one instrument shows, [] if it is silent. Raises `ValueError` for an instrument that does not exist."""
        one_of("instrument", name, INSTRUMENTS)
        self.run()
        if name not in self.tests:
            self.tests.append(name)
        return self._findings[name]

    def diagnose(self, cause: Any = ..., tick: Any = ..., cure: Any = ...) -> None:
        """Print the verdict on a cause, a tick in which it can be seen, and a cure; keep its points if they are the best.

        Raises `ValueError` for a cause or a cure that is not on the lists, `CAUSES` and `CURES`, and for no tick.
        """
        parts = {"cause": cause, "tick": tick, "cure": cure}
        lacking = [name for name, given in parts.items() if given is ...]
        if lacking:
            print("○ not attempted" if len(lacking) == len(parts) else f"○ still to be filled in: {', '.join(lacking)}")
            return
        points, words = self.judge(cause, tick, cure)
        key = f"10.patient {self.number}"
        record.record("results", key, max(points, record.load()["results"].get(key, 0)))
        print("\n".join(words))
        if cause == self._name:
            reveal(f"10.wing {self.number}", WINGS[self._name])

    def judge(self, cause: str, tick: int, cure: str) -> tuple[int, list[str]]:
        """Points and verdict of a diagnosis."""
        cause, cure = one_of("cause", cause, tuple(CAUSES)), one_of("cure", cure, tuple(CURES))
        signs, patient = self.signs, self._patient
        tick = whole("tick", tick, 1, len(self._told))
        if (cause, tick, cure) not in self._given:
            self._given.append((cause, tick, cure))
        known = cause == self._name  # a tick shows nothing to somebody who sees something else in it
        right = known, known and tick in self._evidence, cure in patient.treatments
        spent = max(0, len(self.tests) - 1) + len(self._given) - 1
        points = max(0, sum(worth for worth, good in zip((CAUSE, TICK, CURE), right, strict=True) if good) - spent)
        looking_for = f". What to look for: {type(patient).evidence.__doc__}" if right[0] else ""
        words = [
            f"{_mark(right[0])} cause: {cause}" + ("" if right[0] else f". {self._why_not(cause)}"),
            f"{_mark(right[1])} tick {tick}"
            + ("" if right[1] else f" of {signs.ticks} does not show that{looking_for}"),
            f"{_mark(right[2])} cure: {cure}" + ("" if right[2] else f". That would be: {CURES[cure]}"),
            f"{points} of 10 points" + (f", {spent} paid for further tests and diagnoses" if spent else ""),
        ]
        if all(right):
            words += [patient.cause, patient.cure]
        return points, words

    def _why_not(self, cause: str) -> str:
        """What would have to be true."""
        if cause in NOBODY_HAS:
            return f"If so, {WHY_NOT[cause]}"
        instrument = PATIENTS[cause].instrument
        if self._findings[instrument]:
            return f"“{instrument}” does speak, but for another reason"
        return f"“{instrument}” would show it, and is silent"


def guess(number: int) -> Prediction:
    """Ask where the fault of a patient is, from the complaint alone; a diagnosis tells."""
    question = f"Patient {number}: “{Case(number).complaint}” Where is the fault?"
    return predict(f"10.wing {number}", question, choices=[TRAFFIC, BOOKS, NUMBERS])


def board() -> None:
    """Print the points of every patient so far."""
    kept = record.load()["results"]
    points = [kept.get(f"10.patient {number}") for number in range(1, len(WARD) + 1)]
    print("patient " + "".join(f"{number:>4}" for number in range(1, len(WARD) + 1)))
    print("points  " + "".join(f"{'–' if p is None else p:>4}" for p in points))


def _folded(events: Iterable[ev.Event]) -> Iterator[str]:
    """A line for each event; of many in a row of one kind and request, the first and the last."""
    shown = (event for event in events if not isinstance(event, ev.Start | ev.End))
    for _, alike in groupby(shown, lambda event: (event.kind, getattr(event, "request", None))):
        run = list(alike)
        for event in run if len(run) <= 4 else run[:1]:
            yield f"{event.phase:<8} {line(event)}"
        if len(run) > 4:
            yield f"{'':<8} … {count(len(run) - 2, 'line')} like it"
            yield f"{'':<8} {line(run[-1])}"


def _mark(right: bool) -> str:
    return "✓" if right else "✗"

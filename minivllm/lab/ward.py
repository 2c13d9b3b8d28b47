"""The ward: twelve sick engines under numbers, and what is asked of whoever treats one.

    case = Case(3)
    case.run()
    print(case)                  what its owner says, and its vital signs
    case.log(7)                  what happened in a tick
    case.test("leaks")           an instrument; the first is free, each further one costs a point
    case.diagnose(cause="leak", tick=7, cure="release-everything")

A diagnosis earns ten points at most: four for the cause, three for a tick that shows it, three for the cure.
"""

from types import EllipsisType
from typing import Any

from minivllm import events as ev
from minivllm.engine import Engine
from minivllm.lab import record
from minivllm.lab.faults import INSTRUMENTS, PATIENTS, admit
from minivllm.lab.predictions import Prediction, predict, reveal
from minivllm.lab.vital_signs import VitalSigns, vital_signs
from minivllm.metrics import Metrics
from minivllm.narrate import count, line, until_failure
from minivllm.recorder import Recorder

WARD = (
    "dynamic-prompt", "leak", "starvation", "huge-blocks", "stale-table", "small-pool", "whole-prompt-hit",
    "unmasked-tail", "tiny-blocks", "borrowed-block", "ping-pong", "half-precision-sum",
)  # fmt: skip
CAUSES = {name: patient.cause for name, patient in sorted(PATIENTS.items())}
CURES = {patient.treatment: patient.cure for patient in sorted(PATIENTS.values(), key=lambda p: p.treatment)}
CAUSE, TICK, CURE = 4, 3, 3
"""Points for each part of a diagnosis."""
TRAFFIC, BOOKS, NUMBERS = "in settings or traffic", "in the books", "in the numbers"
WINGS = dict.fromkeys(PATIENTS, TRAFFIC)
WINGS |= dict.fromkeys(("leak", "borrowed-block", "whole-prompt-hit", "stale-table"), BOOKS)
WINGS |= dict.fromkeys(("unmasked-tail", "half-precision-sum"), NUMBERS)


class Case:
    """One patient, numbered from 1, and how it was examined. Raises `ValueError` for a number that nobody has."""

    def __init__(self, number: int) -> None:
        if number not in range(1, len(WARD) + 1):
            raise ValueError(f"patient is {number!r}; allowed: 1 to {len(WARD)}")
        self.number, self._name = number, WARD[number - 1]
        self._patient = admit(self._name)
        self._signs: VitalSigns | None = None
        self._findings: dict[str, list[str]] = {}
        self.tests: list[str] = []

    @property
    def engine(self) -> Engine:
        """The engine, to be watched from before it runs."""
        return self._patient.engine

    @property
    def recorder(self) -> Recorder:
        """Every event of the run."""
        return self._patient.recorder

    @property
    def prompts(self) -> dict[str, list[int]]:
        """The token ids that each request came with."""
        return self._patient.prompts

    @property
    def metrics(self) -> Metrics:
        """What the dashboard counted."""
        return self._patient.metrics

    def said(self, request_id: str) -> list[int]:
        """The tokens of an answer. Raises `ValueError` for a request without one."""
        if request_id not in self._patient.answers:
            raise ValueError(
                f"{request_id!r} was not answered; those were: {', '.join(self._patient.answers) or 'nobody'}"
            )
        return self._patient.answers[request_id]

    def should_say(self, request_id: str) -> list[int]:
        """What a healthy engine says to the same prompt."""
        said = self.said(request_id)
        with self._patient.twin() as healthy:
            return healthy.say(self.prompts[request_id], len(said))

    @property
    def complaint(self) -> str:
        """What its owner says."""
        return self._patient.complaint

    @property
    def signs(self) -> VitalSigns:
        """The figures of the run, which is made if it was not yet."""
        if self._signs is None:
            self.run()
        assert self._signs is not None
        return self._signs

    def run(self) -> None:
        """Let the traffic come, to its end or to an error; once."""
        if self._signs is None:
            self._findings = self._patient.run().examine()
            self._signs = vital_signs(self._patient)

    def __str__(self) -> str:
        return f"patient {self.number} · “{self.complaint}”\n{self.signs}"

    def log(self, first: int, last: int | None = None) -> None:
        """Print what happened in a tick, or from `first` to `last`. Raises `ValueError` for ticks that did not happen."""
        ticks = len(self.recorder.ticks) - (not self.recorder.ticks[-1]) if self.signs else 0
        last = first if last is None else last
        if not 1 <= first <= last <= ticks:
            raise ValueError(f"ticks are {first} to {last}; there are 1 to {ticks}, in order")
        for tick in range(first, last + 1):
            told, failed = until_failure(self.recorder.events_of(tick))
            print(f"tick {tick}")
            for event in told:
                if not isinstance(event, ev.Start | ev.End):
                    print(f"  {event.phase:<8} {line(event)}")
            if failed:
                print("  the step failed, and the engine began again with an empty pool")

    def test(self, name: str) -> list[str]:
        """What one instrument shows, [] if it is silent. Raises `ValueError` for an instrument that does not exist."""
        _allowed("instrument", name, INSTRUMENTS)
        if name not in self.tests:
            self.tests.append(name)
        return self._findings[name] if self.signs else []

    def diagnose(self, cause: Any = ..., tick: Any = ..., cure: Any = ...) -> None:
        """Print the verdict on a cause, a tick in which it can be seen, and a cure; keep its points if they are the best.

        Raises `ValueError` for a cause or a cure that is not on the lists, `CAUSES` and `CURES`.
        """
        if any(isinstance(given, EllipsisType) for given in (cause, tick, cure)):
            print("○ not attempted")
            return
        points, words = self.judge(cause, tick, cure)
        key = f"10.patient {self.number}"
        record.record("results", key, max(points, record.load()["results"].get(key, 0)))
        print("\n".join(words))
        print("where it is:", end=" ")
        reveal(f"10.wing {self.number}", WINGS[self._name])

    def judge(self, cause: str, tick: int, cure: str) -> tuple[int, list[str]]:
        """Points and verdict of a diagnosis."""
        _allowed("cause", cause, CAUSES)
        _allowed("cure", cure, CURES)
        patient, signs = self._patient, self.signs
        right = cause == self._name, tick in patient.evidence(), cure == patient.treatment
        spent = max(0, len(self.tests) - 1)
        points = max(0, sum(worth for worth, good in zip((CAUSE, TICK, CURE), right, strict=True) if good) - spent)
        words = [
            f"{_mark(right[0])} cause: {cause}" + ("" if right[0] else f". {_why_not(cause, self._findings)}"),
            f"{_mark(right[1])} tick {tick}" + ("" if right[1] else f" does not show it; the run had {signs.ticks}"),
            f"{_mark(right[2])} cure: {cure}" + ("" if right[2] else f". That would be: {CURES[cure]}"),
            f"{points} of 10 points" + (f", {count(spent, 'extra test')} paid" if spent else ""),
        ]
        if all(right):
            words += [patient.cause, patient.cure]
        return points, words


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


def _why_not(cause: str, findings: dict[str, list[str]]) -> str:
    """Why it is not that: the instrument that shows it is silent."""
    instrument = PATIENTS[cause].instrument
    if findings[instrument]:
        return f"“{instrument}” does speak, but for another reason"
    return f"“{instrument}” would show it, and is silent"


def _mark(right: bool) -> str:
    return "✓" if right else "✗"


def _allowed(what: str, given: Any, known: Any) -> None:
    if given not in known:
        raise ValueError(f"{what} is {given!r}; allowed: {', '.join(known)}")

"""Chapter 10: find lost references, name a fault from its signs, and make an engine ill so that it can be seen."""

import random
from collections.abc import Callable
from functools import cache

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.allowed import shown
from minivllm.core.kv_manager import KVManager
from minivllm.lab.faults import INSTRUMENTS, Patient, admit
from minivllm.lab.grading import NotAttempted, Wrong, exercise, in_short, require
from minivllm.lab.ward import CAUSES, WARD, Case

MOST_TESTS = 12

Tables = dict[str, list[int]]


@exercise(
    "10.leaks",
    hints=[
        "Every table that holds a block explains one of its references. How many does each block have that none explains?",
        "Count how often each block stands in the tables: Counter(b for table in tables.values() for b in table).",
        "{b: refs[b] - owned[b] for b in range(len(refs)) if refs[b] > owned[b]}",
    ],
)
def leaks(student: Callable[[list[int], Tables], dict[int, int]]) -> str:
    """By hand first, then on engines: one that is well and shares blocks, and the patient."""
    for refs, tables, expected, why in (
        ([1, 1, 0], {"A": [0, 1]}, {}, "A explains both references, and a block with ref 0 is lost to nobody"),
        ([2, 1, 1], {"A": [0, 1], "B": [0, 2]}, {}, "block 0 is in two tables, and has two references"),
        ([1, 0, 1], {"A": [0]}, {2: 1}, "no table has block 2, and it still has a reference"),
        ([3, 1], {"A": [0, 1]}, {0: 2}, "A explains one of the three references of block 0; two are lost"),
        ([1, 2], {"A": [0, 1], "B": [0]}, {1: 1}, "block 0 has fewer references than tables, so it has lost none"),
        ([1, 1], {}, {0: 1, 1: 1}, "nobody is left, and both blocks have a reference"),
        ([2], {"A": [0, 0]}, {}, "A's table has block 0 twice, which explains both references"),
    ):
        got = student(list(refs), {name: list(table) for name, table in tables.items()})
        missing = "; is a `return` missing?" if got is None else ""
        require(isinstance(got, dict), f"give a dict, block -> references lost, not {type(got).__name__}{missing}")
        if 0 in got.values():
            why += "; leave out the blocks that have lost none"
        require(got == expected, f"refs {refs}, tables {tables}: {expected}, not {shown(got)}; {why}")
    healthy = Engine(EngineConfig(block_size=4, num_blocks=32))
    for last in (7, 8, 9):
        healthy.add([*range(20), last], SamplingParams(temperature=0, max_tokens=20, ignore_eos=True))
        healthy.step()
    found = _on(healthy, student)
    require(found == {}, f"an engine that is well, whose requests share blocks, is said to leak: {shown(found)}")
    with admit("leak") as patient:
        patient.run()
        lost = _on(patient.engine, student)
    require(len(lost) == 12, f"patient 2 has lost 12 blocks by the end; you find {len(lost)}")
    return "12 blocks lost by patient 2, none by an engine that shares"


def _on(engine: Engine, student: Callable[[list[int], Tables], dict[int, int]]) -> dict[int, int]:
    cache_ = engine.scheduler.cache
    assert isinstance(cache_, KVManager)
    return student(list(cache_.pool.ref), {r.id: list(r.table) for r in engine.scheduler.requests.values()})


@cache
def _case(number: int) -> Case:
    case = Case(number)
    case.run()
    return case


class Anonymous:
    """A case without its number: signs and tests, nothing else."""

    def __init__(self, number: int) -> None:
        case = _case(number)
        case.tests.clear()
        self.signs, self.test = case.signs, case.test


@exercise(
    "10.detective",
    hints=[
        "Three questions split them: did it stop with an error? is text wrong? else, which figure is out of the ordinary?",
        "signs.error and signs.unlike set five of the twelve apart. For the others look at hits_early and hits_late, "
        "waiting, lost, worst_wait, in_use and blocks; each tells of one.",
        "if signs.error: 'whole-prompt-hit' if case.test('whole hits') else 'borrowed-block'; if signs.unlike: ask "
        "'tables', then 'nan', else it is the sum; then one `if` for each of the others.",
    ],
)
def detective(student: Callable[[Case], str]) -> str:
    """All of the twelve, with one test each on average."""
    spent, missed, blank = 0, {}, 0
    beds = list(enumerate(WARD, 1))
    random.Random(10).shuffle(beds)
    for number, cause in beds:
        try:
            named = student(Anonymous(number))  # type: ignore[arg-type]
        except NotAttempted:  # this branch gives `...` back; others may not
            missed[number], blank = f"for patient {number} you say ..., which is no cause yet", blank + 1
            continue
        known = isinstance(named, str) and named in CAUSES
        missing = "is a `return` missing?" if named is None else f"they are {', '.join(CAUSES)}"
        require(known, f"for patient {number} you say {shown(named)}, which is no cause; {missing}")
        spent += len(_case(number).tests)
        if named != cause:
            missed[number] = f"patient {number} has {cause}, you say {named}"
    if blank == len(WARD):
        raise NotAttempted
    words = f"{len(WARD) - len(missed)} of {len(WARD)} found with {spent} tests"
    if missed:
        raise Wrong(f"{words}; {missed[min(missed)]}")
    require(spent <= MOST_TESTS, f"{words}: more than {MOST_TESTS}; let the signs decide which to make")
    return words


@exercise(
    "10.patient",
    hints=[
        "Take one rule of the engine and break it by halves: who is admitted first, who is evicted, how large a block is.",
        "A policy that admits the newest first lets the oldest wait as long as others come: instrument 'overtaken'.",
        "build: Engine(config) if self.cured else Engine(config, policy=Newest()). And make the answers of `visits` a little "
        "longer: two seats can just bear 6 tokens every third tick, so nobody waits; 6 + n % 2 is too much for them.",
    ],
)
def patient(student: type[Patient]) -> str:
    """The named instrument speaks when it is ill and no other does; cured, none does."""
    require(isinstance(student, type) and issubclass(student, Patient), "give a subclass of Patient, the class itself")
    if ... in (vars(student).get("complaint"), vars(student).get("instrument")):
        raise NotAttempted
    for name in ("complaint", "cause", "cure"):
        text = getattr(student, name, "")
        require(isinstance(text, str) and len(text.split()) >= 4, f"say its {name} in a sentence")
    instrument = getattr(student, "instrument", None)
    require(instrument in INSTRUMENTS, f"instrument is {shown(instrument)}; allowed: {', '.join(INSTRUMENTS)}")
    spoke = {}
    for cured in (True, False):
        with student(cured=cured) as one:
            require(bool(one.visits()), "nobody visits it: `visits` gives no traffic")
            spoke[cured] = [name for name, lines in one.run().examine().items() if lines]
            why = f": {in_short(one.error)}" if one.error else ""
            served = one.done and not one.error
            require(served or not cured, f"cured, it does not answer everybody within {one.max_ticks} ticks{why}")
    require(not spoke[True], f"cured, it should be well, but these speak: {', '.join(spoke[True])}")
    require(bool(spoke[False]) or not why, f"ill, it stops before an instrument shows anything{why}")
    require(bool(spoke[False]), "ill, it looks well: no instrument shows anything. More traffic, or a worse fault")
    require(instrument in spoke[False], f"{instrument!r} is silent; these speak: {', '.join(spoke[False])}")
    also = (student.also,) if isinstance(student.also, str) else tuple(student.also)  # ("leaks") is no tuple
    others = [name for name in spoke[False] if name not in (instrument, *also)]
    require(not others, f"these speak too: {', '.join(others)}; name them in `also`, or make the fault smaller")
    silent = [name for name in also if name not in spoke[False]]
    require(not silent, f"`also` names {shown(', '.join(map(str, silent)))}, but that is silent")
    shows = " and ".join(repr(name) for name in spoke[False])
    only, verb = ("Only ", "shows") if len(spoke[False]) == 1 else ("", "show")
    return f"“{student.complaint}” {only}{shows} {verb} it, and the cure helps"

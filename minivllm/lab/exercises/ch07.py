"""Chapter 07: the free queue in constant time, and an eviction order that beats LRU; both run inside the real engine."""

import random
import time
from collections.abc import Callable
from statistics import mean, median
from typing import Any

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.assembly import EvictionFactory
from minivllm.core.eviction import LRU, Eviction
from minivllm.lab.grading import NotAttempted, exercise, require
from minivllm.output import RequestOutput

METHODS = ("insert", "remove", "pop", "__len__", "__iter__")
SEEDS = range(4)


class Counted(int):
    """A block id that counts how often it is compared: a search gives itself away without a clock."""

    compared = 0
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other


@exercise(
    "07.queue",
    hints=[
        "A list is quick at its end. What does it have to do to take something out of its middle?",
        "Which container of `collections` deletes by key in one step, keeps the order of insertion, and pops from its front?",
        "self.order = OrderedDict(): insert is self.order[block] = None, remove is del self.order[block], and pop is "
        "self.order.popitem(last=False)[0].",
    ],
)
def queue(student: Callable[[], Eviction]) -> str:
    """First in, first out, with removal from anywhere, and no search; then the order of a live engine."""
    made = _begun(student)
    for block in (5, 3, 9, 7):
        made.insert(block)
    require(list(made) == [5, 3, 9, 7], f"after inserting 5, 3, 9, 7 it should read like that, not {list(made)}")
    require(len(made) == 4, f"len is {len(made)} with four blocks in it")
    made.remove(3)
    require(list(made) == [5, 9, 7], f"3 was removed from the middle: 5, 9, 7 are left, not {list(made)}")
    got = made.pop()
    require(got is not None, "pop gives the block back")
    require(got != 7, "pop takes from the front: 5 has waited longest, 7 came last")
    require(got == 5, f"pop takes from the front: 5, not {got!r}")
    require(list(made) == [9, 7], f"popped blocks are gone: 9, 7 are left, not {list(made)}")
    made.insert(5)
    require(list(made) == [9, 7, 5], f"a block that comes back joins at the end: 9, 7, 5, not {list(made)}")
    made.remove(9)
    made.insert(9)
    require(list(made) == [7, 5, 9], f"removed and inserted again, 9 is the youngest: 7, 5, 9, not {list(made)}")
    made = student()
    each = {
        "inserting": _compared(made.insert, range(2000)),
        "removing": _compared(made.remove, range(1000, 1200)),
        "popping": _compared(lambda _: made.pop(), range(200)),
    }
    for what, others in each.items():
        require(
            others < 20,
            f"{what} one of 2,000 blocks compares {others:.0f} others: in a pool of a million that is a search",
        )
    require(
        min(_popping(student, gone=20_000) / _popping(student, gone=0) for _ in range(3)) < 10,
        "pop takes longer, the more blocks were taken from the front before: a dict steps over the places of all of them. "
        "OrderedDict.popitem(last=False) does not",
    )
    for what in ("insert", "remove", "pop", "len"):
        few, many = (min(_taking(student, what, held) for _ in range(3)) for held in (500, 20_000))
        require(
            many < 8 * few,
            f"{what} takes {many / few:.0f} times as long with 20,000 blocks as with 500: it walks through them",
        )
    for seed in SEEDS:
        mine, lru = (shared_beginnings(order, 40, seed) for order in (student, LRU))
        require(
            mine == lru, "in the engine it takes other blocks than its own LRU does; see what comes back, and where"
        )
    return f"as the engine's own LRU on {len(SEEDS)} runs of 40 requests, and no search among 2,000"


@exercise(
    "07.eviction",
    hints=[
        "What tells a block of the system prompt from one of a prompt that is read once? What do you get to know of it?",
        "`remove` means: somebody hit it. Keep two queues, one for blocks that were hit at least once.",
        "insert puts a block into `again` if it was hit since it was last popped, else into `once`; pop takes from `once` as "
        "long as there is one. When `again` gets longer than `once`, its oldest block goes back.",
    ],
)
def eviction(student: EvictionFactory) -> str:
    """More hits than LRU in a flood of prompts that are read once, not much fewer in conversations, and the books in order."""
    made = _begun(student)
    for block in (1, 2, 3):
        made.insert(block)
    made.remove(2)
    made.insert(2)
    require(
        len(made) == 3 == len(list(made)), f"three blocks stand in it, but len is {len(made)} and it reads {list(made)}"
    )
    (mine, lru), (talk, lru_talk) = (
        [mean(traffic(order, seed) for seed in SEEDS) for order in (student, LRU)] for traffic in (flood, conversations)
    )
    words = f"it finds {mine:.1f} % of the prompts' tokens, LRU {lru:.1f} %"
    require(mine >= lru, f"{words}: less than LRU")
    require(mine > 1.2 * lru, f"{words}: no better. Who was hit before? Let those stay longest")
    also = f"in conversations, where the next turn hits the last one, {talk:.0f} %, LRU {lru_talk:.0f} %"
    require(talk > 0.75 * lru_talk, f"{words}, but {also}: what is young may be needed next")
    return f"{words} among prompts that are read once; {also}"


def _compared(call: Callable[[int], Any], blocks: range) -> float:
    """How many blocks are compared, on average, when `call` is given each of these."""
    Counted.compared = 0
    for block in blocks:
        call(Counted(block))
    return Counted.compared / len(blocks)


def _popping(student: Callable[[], Eviction], gone: int) -> float:
    """Seconds that one pop takes, after `gone` blocks were removed from the front."""
    made = student()
    for block in range(20_000 + gone):
        made.insert(block)
    for block in range(gone):
        made.remove(block)
    return _seconds(lambda _: made.pop())


def _taking(student: Callable[[], Eviction], what: str, held: int) -> float:
    """Seconds that one call takes while some blocks are held."""
    made = student()
    for block in range(held):
        made.insert(block)
    calls: dict[str, Callable[[int], object]] = {
        "insert": lambda number: made.insert(held + number),
        "remove": lambda number: made.remove(held // 2 + number),
        "pop": lambda _: made.pop(),
        "len": lambda _: len(made),
    }
    return _seconds(calls[what])


def _seconds(call: Callable[[int], object]) -> float:
    """Median of `call(0)`, `call(1)` and so on."""

    def once(number: int) -> float:
        begin = time.perf_counter()
        call(number)
        return time.perf_counter() - begin

    return median(once(number) for number in range(101))


def _begun(student: Callable[[], Any]) -> Any:
    """An instance, if it does anything at all."""
    require(isinstance(student, type), "give the class itself, its name without brackets")
    lacking = [name for name in METHODS if not hasattr(student, name)]
    require(not lacking, f"it lacks {', '.join(lacking)}")
    made = student()
    made.insert(1)
    if len(made) == 0 and list(made) == [] and made.pop() is ...:
        require(
            _empty(type(made).insert) and _empty(type(made).remove),
            "insert(1) was called, and len is still 0: pop, len and iteration are still to be written",
        )
        raise NotAttempted
    return student()


def _empty(method: Any) -> bool:
    """Whether a method still is as it was handed out: nothing but `...`."""

    def nothing(self: Any, block: int) -> None: ...

    return method.__code__.co_code == nothing.__code__.co_code if hasattr(method, "__code__") else False


def shared_beginnings(order: EvictionFactory, requests: int, seed: int) -> list[int]:
    """Cached tokens of each of some requests over few beginnings, in a small pool."""
    rng = random.Random(seed)
    found = []
    with Engine(EngineConfig(block_size=4, num_blocks=24), eviction=order) as engine:
        for _ in range(requests):
            beginning = rng.randrange(4) * 100
            prompt = [*range(beginning, beginning + 16), *(rng.randrange(500, 900) for _ in range(rng.randint(1, 12)))]
            found.append(_serve(engine, prompt, 2).num_cached_tokens)
    return found


def flood(order: EvictionFactory, seed: int) -> float:
    """Per cent of the prompts' tokens found: every sixth prompt has a system prompt, the others are read once."""
    rng = random.Random(seed)
    cached = total = 0
    with Engine(EngineConfig(block_size=4, num_blocks=60), eviction=order) as engine:
        for number in range(60):
            often = [*range(1000, 1040), *(rng.randrange(500) for _ in range(6))]
            once = [rng.randrange(500) for _ in range(rng.randint(30, 60))]
            result = _serve(engine, often if number % 6 == 0 else once, 2)
            cached, total = cached + result.num_cached_tokens, total + len(result.prompt_token_ids)
    return 100 * cached / total


def conversations(order: EvictionFactory, seed: int) -> float:
    """Per cent of the prompts' tokens found: six people talk, some more than others, and start anew when it gets long."""
    rng = random.Random(seed)
    talks: list[list[int]] = [[] for _ in range(6)]
    cached = total = 0
    with Engine(EngineConfig(block_size=4, num_blocks=56), eviction=order) as engine:
        for _ in range(60):
            who = min(int(rng.expovariate(0.7)), 5)
            past = talks[who] if len(talks[who]) < 90 else []
            result = _serve(engine, past + [rng.randrange(20_000) for _ in range(rng.randint(5, 12))], 6)
            talks[who] = result.prompt_token_ids + result.outputs[0].token_ids
            cached, total = cached + result.num_cached_tokens, total + len(result.prompt_token_ids)
    return 100 * cached / total


def _serve(engine: Engine, prompt: list[int], tokens: int) -> RequestOutput:
    """One request, alone; the engine's books must be in order afterwards."""
    name = engine.add(prompt, SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True))
    engine.run()
    require(not engine.audit(), f"the engine's books after a request: {'; '.join(engine.audit())}")
    return engine.result(name)

"""Chapter 11: the KV heads of a rank, and a router that uses what its replicas know without wearing one of them out."""

import random
from collections.abc import Callable
from numbers import Integral
from statistics import mean
from typing import NamedTuple

from minivllm import EngineConfig
from minivllm.allowed import shown
from minivllm.lab.device import TimeModel
from minivllm.lab.fleet import Fleet
from minivllm.lab.grading import NotAttempted, exercise, in_short, require
from minivllm.lab.routers import Router
from minivllm.lab.workloads import Call, chat
from minivllm.narrate import count

CONFIG = EngineConfig(num_blocks=384, max_num_seqs=16)
SLOW = TimeModel(step=20e-3, row=50e-6, prefill=200e-6, context=0.2e-6)
N, HITS, BALANCE, WAIT = 4, 0.8, 1.6, 0.1  # replicas, least hit rate, largest share times N, seconds
SHARED = ((8, 1, 8), (8, 2, 4), (8, 4, 2), (8, 8, 1), (3, 3, 1), (8, 16, 1), (2, 8, 1), (1, 4, 1), (6, 3, 2), (3, 6, 1))
REFUSED = ((8, 3), (8, 12), (3, 2), (6, 4))


@exercise(
    "11.kv_heads",
    hints=[
        "With fewer ranks than heads each takes an equal share. With more ranks than heads, can a rank have none?",
        "A rank without a head could not attend: it gets a copy of one. And if the numbers do not fit, refuse.",
        "if kv_heads % ranks and ranks % kv_heads: raise ValueError(…); return max(1, kv_heads // ranks)",
    ],
)
def kv_heads(student: Callable[[int, int], int]) -> str:
    """Equal shares, copies where there are more ranks than heads, and a `ValueError` where neither works."""
    for heads, ranks, expected in SHARED:
        asked = f"{heads} KV heads on {count(ranks, 'rank')}"
        try:
            got = student(heads, ranks)
        except ValueError as error:
            require(False, f"{asked} work: {expected} each; you refused them ({shown(in_short(error))})")
        require(not isinstance(got, Exception), f"{asked}: raise the error, do not return it")
        require(got is not None, f"{asked}: you gave None; is a `return` missing?")
        is_whole = isinstance(got, Integral) and not isinstance(got, bool)
        require(is_whole, f"{asked}: {shown(got)} is no whole number; divide with //")
        require(got != 0, f"{asked}: a rank with no head cannot attend; it gets a copy of one")
        require(
            got != ranks // heads or got == expected, f"{asked}: {got} ranks hold a copy of each head; a rank has one"
        )
        require(ranks == 1 or got != heads or got == expected, f"{asked}: {got} is all of them; a rank has its share")
        require(got == expected, f"{asked}: {expected} each, not {got}")
    for heads, ranks in REFUSED:
        try:
            got = student(heads, ranks)
        except ValueError:
            continue
        except NotAttempted:
            raise
        except Exception as error:
            meant = type(error) in (Exception, AssertionError, NotImplementedError)
            name = type(error).__name__
            require(not meant, f"{heads} KV heads on {ranks} ranks: you raise {name}; make it a ValueError")
            raise
        require(not isinstance(got, Exception), f"{heads} KV heads on {ranks} ranks: raise the error, do not return it")
        require(
            False,
            f"{heads} KV heads on {ranks} ranks: you say {shown(got)}, but {ranks} ranks of equal size cannot hold them; "
            "raise a ValueError",
        )
    return "shares, copies and refusals as in vLLM"


@exercise(
    "11.route",
    hints=[
        "Ask every replica what it knows: replica.match(prompt), in tokens. Who should get the call? Who, of equals?",
        "max(range(len(replicas)), key=lambda n: (replicas[n].match(prompt), -replicas[n].load)) finds much. When "
        "everybody asks about the same text, where do they all go?",
        "Before that, leave out whoever has more than 4 requests above the least loaded.",
    ],
)
def route(student: type) -> str:
    """Good hits and even work in hidden conversations, and no queue when everybody asks about one text."""
    require(isinstance(student, type), f"give the class itself, not {type(student).__name__}")
    require(hasattr(student, "route"), "it lacks route")
    if _untouched(student):
        raise NotAttempted
    talk = served(student(), chat(7, conversations=64, rate=4.0))
    words = f"{100 * talk.hit_rate:.0f} % hits in conversations"
    missed = _share(talk, lambda mine, other: other.found > mine.found and other.load <= mine.load)
    passed_over = _share(talk, lambda mine, other: other.found > mine.found)
    busier = _share(talk, lambda mine, other: other.found == mine.found and other.load < mine.load)
    if talk.hit_rate < HITS:
        require(
            missed < 10,
            f"{words}; in {missed:.0f} % of your decisions another knew more of the prompt and had no more to do: ask match",
        )
        require(
            passed_over < 20,
            f"{words}; in {passed_over:.0f} % of your decisions another knew more of the prompt: a few requests more are "
            "no reason to pass it over",
        )
    require(
        busier < 10,
        f"{words}; in {busier:.0f} % of your decisions another knew as much and had less to do: of equals, take the "
        "least loaded",
    )
    crowd = served(student(), popular())
    waited, share = mean(crowd.ttft), crowd.balance / N
    require(
        waited < WAIT,
        f"{words}; but when everybody asks about one text, a single replica does {100 * share:.0f} % of the work and the "
        f"first token takes {waited:.2f} s, not {WAIT}: leave out whoever is overloaded",
    )
    require(talk.hit_rate >= HITS, f"{words}: {100 * HITS:.0f} % can be had")
    require(
        talk.balance <= BALANCE,
        f"{words}; but one replica does {talk.balance:.2f} times its share of the conversations, {BALANCE} at most: fewer "
        "requests above the least loaded, and of equals the least loaded",
    )
    idle = [replica.number for replica in talk.replicas if not replica.metrics.computed_tokens]
    require(
        not idle,
        f"{words}; but {count(len(idle), 'replica')} never got a call: look at all of `replicas`, range(len(replicas))",
    )
    return f"{words}, {100 * crowd.hit_rate:.0f} % on one text, and {1000 * waited:.0f} ms to the first token there"


def served(router: Router, calls: list[Call]) -> Fleet:
    """Four replicas on a slow device."""
    fleet = Fleet(N, CONFIG, router, SLOW)
    fleet.serve(calls)
    return fleet


def popular(seed: int = 5, questions: int = 120, every: float = 0.04) -> list[Call]:
    """One text that everybody asks about: a question each `every` seconds, more than one replica can answer."""
    rng = random.Random(seed)
    return [
        Call(
            f"reader{n}",
            round(n * every, 3),
            ((f"manual {seed}", 480), (f"question {n} {seed}", 16)),
            rng.randint(16, 64),
        )
        for n in range(questions)
    ]


class _Seen(NamedTuple):
    """A replica in one decision."""

    found: int
    load: int


def _share(fleet: Fleet, holds: Callable[[_Seen, _Seen], bool]) -> float:
    """Percent of the decisions in which `holds(chosen, another)` for some other replica."""
    decisions = []
    for routed in fleet.routed:
        seen = [_Seen(found, load) for found, load in zip(routed.found, routed.loads, strict=True)]
        decisions.append(any(holds(seen[routed.replica], other) for other in seen))
    return 100 * mean(decisions)


def _untouched(student: type) -> bool:
    """Whether `route` gives back the dots it came with."""
    try:
        return student().route([1, 2, 3], Fleet(2, CONFIG, student()).replicas) is ...
    except Exception:  # it looks at what it is given: somebody has begun
        return False

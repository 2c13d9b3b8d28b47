"""Traffic to try an engine with: who comes when, with which prompt, for how many tokens; made from a seed.

A prompt is a list of runs of text, `("system", 512)`; runs of the same name begin with the same tokens, so that a
shared system prompt can be seen in the file. A turn of a conversation names the turn before it: its prompt begins
with that one's prompt and answer, and it arrives `at` seconds after the answer.
"""

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

from minivllm.allowed import real, whole

VOCABULARY = 32_000
Span = tuple[str, int]


@dataclass(frozen=True)
class Call:
    """One request of a workload. `at`: seconds from the start, or from the end of the call named by `after`.

    Raises `ValueError` for a time below 0, and for an output of no token.
    """

    id: str
    at: float
    prompt: tuple[Span, ...]
    output: int
    after: str | None = None
    priority: int = 0

    def __post_init__(self) -> None:
        real(f"at of call {self.id!r}", self.at, 0, 1e9, "seconds, 0 or more")
        whole(f"output of call {self.id!r}", self.output, 1)


def tokens_of(prompt: Sequence[Span], vocab_size: int = VOCABULARY) -> list[int]:
    """The token ids of a prompt's runs; a run is the same wherever its name occurs. Ids below 16 are never used."""
    ids: list[int] = []
    for name, length in prompt:
        source = random.Random(blake2b(name.encode(), digest_size=8).digest())
        ids += [16 + source.randrange(vocab_size - 16) for _ in range(length)]
    return ids


def chat(seed: int = 0, conversations: int = 24, rate: float = 1.0) -> list[Call]:
    """Conversations of 2 to 5 turns over one of three system prompts; people read and type between the turns.

    `rate`: conversations that begin in a second. Raises `ValueError` for a number that is not positive.
    """
    _positive(rate, conversations=conversations)
    rng = random.Random(seed)
    calls, clock = [], 0.0
    for number in range(conversations):
        clock += rng.expovariate(rate)
        previous = None
        for turn in range(rng.randint(2, 5)):
            name = f"chat{number}.{turn}"
            question = (f"{name} {seed}", length(rng, 40, 0.8, 8, 200))
            system = () if previous else ((f"system {rng.randrange(3)}", 200),)
            at = rng.uniform(2, 12) if previous else clock
            calls.append(Call(name, round(at, 3), (*system, question), length(rng, 80, 0.7, 8, 300), previous))
            previous = name
    return calls


def agent(seed: int = 0, sessions: int = 8, rate: float = 0.5) -> list[Call]:
    """Agents with a long tool description: each step appends a tool's answer to all that went before, at once.

    `rate`: sessions that begin in a second. Raises `ValueError` for a number that is not positive.
    """
    _positive(rate, sessions=sessions)
    rng = random.Random(seed)
    calls, clock = [], 0.0
    for number in range(sessions):
        clock += rng.expovariate(rate)
        previous = None
        for step in range(rng.randint(3, 6)):
            name = f"agent{number}.{step}"
            observed = (f"{name} {seed}", length(rng, 60, 0.8, 8, 300))
            tools = () if previous else ((f"tools {rng.randrange(2)}", 1500),)
            at = 0.2 if previous else clock
            calls.append(Call(name, round(at, 3), (*tools, observed), length(rng, 40, 0.5, 8, 120), previous))
            previous = name
    return calls


def batch(seed: int = 0, documents: int = 12, questions: int = 6) -> list[Call]:
    """Everything at once: some questions about each of several documents, in no order, short answers."""
    rng = random.Random(seed)
    sizes = [length(rng, 500, 0.6, 64, 1400) for _ in range(documents)]
    asked = [(d, q) for d in range(documents) for q in range(questions)]
    rng.shuffle(asked)
    return [
        Call(f"batch{d}.{q}", 0.0, ((f"document {d} {seed}", sizes[d]), (f"question {d}.{q}", 12)), rng.randint(8, 48))
        for d, q in asked
    ]


def bursty(seed: int = 0, bursts: int = 6, size: int = 12) -> list[Call]:
    """Bursts of short questions over four shared prompts, with a few long urgent ones among them."""
    rng = random.Random(seed)
    calls = []
    for burst in range(bursts):
        for i in range(size):
            urgent = rng.random() < 0.15
            own = (f"burst{burst}.{i} {seed}", 900 if urgent else length(rng, 30, 0.6, 8, 120))
            shared = (f"template {rng.randrange(4)}", 320)
            at = round(burst * 6 + rng.random() * 0.5, 3)
            calls.append(Call(f"burst{burst}.{i}", at, (shared, own), rng.randint(16, 96), None, -1 if urgent else 0))
    return calls


WORKLOADS: dict[str, Callable[..., list[Call]]] = {"chat": chat, "agent": agent, "batch": batch, "bursty": bursty}


def make(name: str, seed: int = 0) -> list[Call]:
    """The workload of that name. `assets/traces/NAME.jsonl` is `make(NAME)`. Raises `ValueError` for an unknown one."""
    if name not in WORKLOADS:
        raise ValueError(f"workload is {name!r}; there are {', '.join(WORKLOADS)}")
    return WORKLOADS[name](seed)


def turns(calls: Iterable[Call]) -> tuple[list[Call], dict[str, list[Call]]]:
    """The calls that come by themselves, and by the id of each other call's predecessor those that follow it.

    Raises `ValueError` for two calls of one id, and for a call that follows one that is not there.
    """
    calls = list(calls)
    ids = Counter(call.id for call in calls)
    if twice := [name for name, times in ids.items() if times > 1]:
        raise ValueError(f"calls have the same id: {', '.join(twice[:5])}; each needs one of its own")
    followers: dict[str, list[Call]] = {}
    for call in calls:
        if call.after is not None:
            followers.setdefault(call.after, []).append(call)
    if lost := sorted(followers.keys() - ids.keys()):
        raise ValueError(f"calls follow {', '.join(lost)}, which is not in the workload")
    return [call for call in calls if call.after is None], followers


def save(calls: Iterable[Call], path: str | Path) -> None:
    """One call per line."""
    Path(path).write_text(
        "".join(json.dumps(asdict(call), separators=(",", ":")) + "\n" for call in calls), encoding="utf-8"
    )


def load(path: str | Path) -> list[Call]:
    """Read a file of `save`, or one of your own. Raises `ValueError` naming the line that is wrong."""
    calls = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            fields = json.loads(line)
            calls.append(Call(**{**fields, "prompt": tuple((name, size) for name, size in fields["prompt"])}))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    return calls


def _positive(rate: float, **numbers: int) -> None:
    real("rate", rate, 0, 1e9, "a number above 0", above=True)
    for name, number in numbers.items():
        whole(name, number, 1)


def length(rng: random.Random, mean: float, spread: float, low: int, high: int) -> int:
    """A log-normal length of `mean` and standard deviation `spread` × `mean`, cut to `low` … `high`."""
    sigma = math.sqrt(math.log(1 + spread * spread))
    return min(high, max(low, round(rng.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma))))

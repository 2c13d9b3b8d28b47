"""Chapter 05: one scheduling step under a token budget, fuzzed on its own and then run inside the engine."""

import random
from collections.abc import Mapping
from typing import Any

from minivllm.allowed import shown
from minivllm.config import EngineConfig
from minivllm.engine import Engine
from minivllm.lab.budget import Share, engine_with
from minivllm.lab.grading import NotAttempted, exercise, require, returned
from minivllm.request import SamplingParams

FUZZED = 300
CONFIG = EngineConfig(
    block_size=4, num_blocks=64, max_num_batched_tokens=8, max_num_seqs=5, enable_prefix_caching=False
)
TRACES = (
    ((9, 6), (30, 4), (5, 9), (17, 3), (4, 4), (12, 8)),
    ((40, 3), (3, 12), (3, 12), (21, 5)),
    ((8, 1), (8, 2), (1, 7), (33, 6), (2, 2)),
)
"""Requests, (prompt, answer) in tokens, for the runs inside the engine."""


@exercise(
    "05.share",
    hints=[
        "Who would notice first if they got nothing in this tick? Serve them first, one token each.",
        "Then go through `prompts` from the front: each gets as much as it still needs, or what is left of the budget.",
        "for who, left in prompts: count = min(left, budget); if count: shares[who] = count; budget -= count",
    ],
)
def share(student: Share) -> str:
    """`student(budget, decodes, prompts)` gives `{id: tokens}`: decodes first, then prompts in order and in chunks."""
    for budget, decodes, prompts, right, why in (
        (8, ["A", "B"], [], {"A": 1, "B": 1}, "each decode computes one token"),
        (8, [], [("C", 5)], {"C": 5}, "the prompt fits the budget whole"),
        (
            8,
            ["A", "B"],
            [("C", 30)],
            {"A": 1, "B": 1, "C": 6},
            "two decodes leave 6 of 8 tokens: C's first chunk has 6",
        ),
        (8, ["A"], [("C", 3), ("D", 9)], {"A": 1, "C": 3, "D": 4}, "what C leaves of the budget, D gets: 4 of its 9"),
        (2, ["A", "B", "C"], [("D", 4)], {"A": 1, "B": 1}, "two decodes spend the budget of 2; D is not in the step"),
    ):
        got = _asked(student, budget, decodes, prompts)
        case = f"budget {budget}, decodes {decodes}, prompts {prompts}"
        require(got == right, f"{case}: {right}, since {why}. You gave {got}")
    rng = random.Random(5)
    for _ in range(FUZZED):
        decodes = [f"d{n}" for n in range(rng.randint(0, 6))]
        prompts = [(f"p{n}", rng.randint(1, 40)) for n in range(rng.randint(0, 5))]
        _obeys(student, rng.randint(1, 24), decodes, prompts)
    ticks = sum(_same_as_the_engine(student, trace) for trace in TRACES)
    return f"{FUZZED} random steps obey the budget, and {ticks} ticks inside the engine give the same texts"


def _asked(student: Share, budget: int, decodes: list[str], prompts: list[tuple[str, int]]) -> dict[str, int]:
    got: Any = student(budget, list(decodes), list(prompts))
    if got is ...:
        raise NotAttempted
    require(isinstance(returned(got), Mapping), f"give a dict, id -> tokens, not {shown(got)}")
    return dict(got)


def _obeys(student: Share, budget: int, decodes: list[str], prompts: list[tuple[str, int]]) -> None:
    case = f"budget {budget}, decodes {decodes}, prompts {prompts}"
    got = _asked(student, budget, decodes, prompts)
    wanted = dict.fromkeys(decodes, 1) | dict(prompts)
    require(got.keys() <= wanted.keys(), f"{case}: {sorted(got.keys() - wanted.keys())} did not ask for anything")
    for who, count in got.items():
        require(count > 0, f"{case}: {who} is given {count} tokens; who gets nothing is left out of the dict")
        require(count <= wanted[who], f"{case}: {who} is given {count}, but wants {wanted[who]}")
    spent, served = sum(got.values()), [who for who in decodes if who in got]
    require(spent <= budget, f"{case}: {spent} tokens are given out, over the budget of {budget}")
    require(served == decodes[:budget], f"{case}: decodes come first, in order, one token each")
    idle = min(budget, sum(wanted.values())) - spent
    require(idle == 0, f"{case}: {idle} tokens of the budget are left, and somebody wants them")
    first = next((n for n, (who, left) in enumerate(prompts) if got.get(who, 0) < left), len(prompts))
    late = [who for who, _ in prompts[first + 1 :] if who in got]
    require(
        not late, f"{case}: {late and late[0]} overtakes {late and prompts[first][0]}, which is before it in the line"
    )


def _same_as_the_engine(student: Share, trace: tuple[tuple[int, int], ...]) -> int:
    """Ticks of a run, if the student's engine writes what the ordinary one does, in as many ticks."""
    ours, theirs = Engine(CONFIG), engine_with(student, CONFIG)
    for engine in (ours, theirs):
        for number, (prompt, answer) in enumerate(trace):
            tokens = list(range(100 * number, 100 * number + prompt))
            engine.add(tokens, SamplingParams(temperature=0, max_tokens=answer))
    right = {o.request_id: o.outputs[0].token_ids for o in ours.run()}
    got = {o.request_id: o.outputs[0].token_ids for o in theirs.run(max_steps=4 * ours.tick)}
    where = f"inside the engine, on requests {trace}"
    require(got == right, f"{where}: the texts differ from those of the engine's own scheduler")
    require(theirs.tick == ours.tick, f"{where}: {theirs.tick} ticks instead of {ours.tick}")
    return theirs.tick

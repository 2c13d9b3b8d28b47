"""Chapter 06: the names of a prompt's blocks, and where two prompts part; both are tried against a live engine."""

import random
from collections.abc import Callable, Sequence

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.core.hashing import ROOT, block_hash, chain
from minivllm.lab.grading import exercise, require, returned

Names = Callable[[Sequence[int], int], list[bytes]]
Parting = Callable[[Sequence[int], Sequence[int], int], "tuple[int, int] | None"]


@exercise(
    "06.block_hashes",
    hints=[
        "A loop over the full blocks. What does the name of a block need besides its own tokens?",
        "Keep the last name in a variable: it is the parent of the next block. The first parent is ROOT.",
        "parent = block_hash(parent, tokens[i * B : (i + 1) * B]) for i in range(len(tokens) // B), collecting parent.",
    ],
)
def block_hashes(student: Names) -> str:
    """A list of names: on small prompts, then as a forecast of what a live engine finds in its cache."""
    got = returned(student([1, 2, 3, 4, 5], 2))
    require(isinstance(got, list | tuple), f"give a list of names, not {type(got).__name__}")
    require(len(got) != 3, "5 tokens in blocks of 2 are two full blocks; the unfinished third has no name yet")
    require(len(got) == 2, f"5 tokens in blocks of 2 are two full blocks, so two names, not {len(got)}")
    require(
        len(student([1, 2, 3, 4], 2)) == 2,
        "4 tokens in blocks of 2 fill two blocks exactly: the last one is full and has a name",
    )
    alone = [block_hash(ROOT, [1, 2]), block_hash(ROOT, [3, 4])]
    require(
        list(got) != alone, "each name comes from its own tokens alone: after another beginning it would be the same"
    )
    whole = [block_hash(ROOT, [1, 2]), block_hash(ROOT, [1, 2, 3, 4])]
    right = chain([1, 2, 3, 4, 5], 2)
    words = "these names differ from the engine's: hash (name of the block before, tokens of this block), ROOT first"
    require(list(got) == right or list(got) == whole, words)
    require(
        list(got) == right, "that names the block by all tokens so far: right in meaning, but not what the engine does"
    )
    require(list(student([], 4)) == [], "an empty prompt has no blocks, so no names")
    hits = 0
    for seed in range(12):
        size, first, second = pair(seed)
        names = [student(list(first), size), student(list(second), size)]
        for prompt, mine in zip((first, second), names, strict=True):
            at = next((i for i, (a, b) in enumerate(zip(mine, chain(prompt, size), strict=False)) if a != b), None)
            require(
                at is None,
                f"{prompt} in blocks of {size}: the name of block {at} is not the engine's; its parent is block {(at or 1) - 1}"
                ", the one just before, under its own name",
            )
        shared = next((i for i, (a, b) in enumerate(zip(*names, strict=False)) if a != b), min(map(len, names)))
        forecast = min(shared, (len(second) - 1) // size) * size
        found = cached(first, second, size)
        require(
            forecast == found,
            f"for {first} and then {second} your names forecast {forecast} cached tokens; it is {found}",
        )
        hits += found // size
    return f"the engine's own names; {hits} hits forecast and found in 12 pairs of prompts"


@exercise(
    "06.first_mismatch",
    hints=[
        "Compare token by token, not block by block: the block follows from the index.",
        "zip stops at the end of the shorter prompt. What is the answer if it gets there?",
        "for i, (x, y) in enumerate(zip(a, b)): return (i // B, i) at the first x != y; after the loop, None.",
    ],
)
def first_mismatch(student: Parting) -> str:
    """(block, index) of the first token that differs; None where one prompt is the beginning of the other."""
    got = student([1, 2, 3, 4, 5, 6], [1, 2, 3, 9, 5, 6], 2)
    require(got != (3, 1), "(index, block) is the wrong way round: the block comes first")
    require(not isinstance(got, int), "give the block too: a pair (block, index)")
    require(got is not None, "tokens 3 differ, 4 against 9: that is no None")
    require(not isinstance(got, list), "give a pair in round brackets, (block, index), not a list")
    require(got != (1, 1), "1 is the place within the block; count the index from the beginning of the prompt")
    require(got != (3, 3), "index 3 lies in block 1: a block has B tokens")
    require(got != (1, 2), "that is where the block begins; the token that differs has index 3")
    require(got == (1, 3), f"[1, 2, 3, 4, 5, 6] and [1, 2, 3, 9, 5, 6] in blocks of 2 part at (1, 3), not {got!r}")
    got = student([7], [8], 4)
    require(
        got is not None, "the first tokens differ, in a block that is not full: (0, 0), for unfinished blocks count too"
    )
    require(got == (0, 0), f"the first tokens differ: (0, 0), not {got!r}")
    got = student([1, 2, 3], [1, 2, 3, 4], 2)
    require(got is None, f"one prompt is the beginning of the other: no token differs, so None, not {got!r}")
    got = student([1, 2, 3, 4], [1, 2, 3], 2)
    require(got is None, f"the second is the beginning of the first: no token differs, so None, not {got!r}")
    require(student([1, 2], [1, 2], 2) is None, "equal prompts: None")
    got = student([1, 2, 3, 4, 5], [1, 9, 3, 8, 5], 4)
    require(got == (0, 1), f"tokens 1 and 3 differ, and the first of them is token 1 in block 0: (0, 1), not {got!r}")
    got = student([1, 2, 3], [1, 2, 9], 2)
    require(got == (1, 2), f"an unfinished block can differ too, here in token 2: (1, 2), not {got!r}")
    for seed in range(12):
        size, first, second = pair(seed)
        part = student(list(first), list(second), size)
        blocks = min(len(first) // size, (len(second) - 1) // size)
        forecast = size * (blocks if part is None else min(part[0], blocks))
        found = cached(first, second, size)
        require(
            forecast == found, f"{first} and {second}, blocks of {size}: you say {part}, but {found} tokens were cached"
        )
    return "right at every edge; an engine reused exactly what lies before it in 12 pairs of prompts"


def pair(seed: int) -> tuple[int, list[int], list[int]]:
    """A block size and two prompts that begin alike: the second changes a token, goes on, or stops early."""
    rng = random.Random(seed)
    size = rng.choice((1, 2, 4))
    first = [rng.randrange(9) for _ in range(rng.randint(4, 20))]
    second = [*first, *(rng.randrange(9) for _ in range(rng.randint(0, 6)))][: rng.randint(3, 26)]
    if seed % 3:
        place = rng.randrange(len(second))
        second[place] = 9
    return size, first, second


def cached(first: list[int], second: list[int], block_size: int) -> int:
    """Tokens of `second` that a simulated engine finds cached after it has served `first`."""
    with Engine(EngineConfig(block_size=block_size, num_blocks=256)) as engine:
        for prompt in (first, second):
            name = engine.add(prompt, SamplingParams(temperature=0, max_tokens=1, ignore_eos=True))
            engine.run()
        return engine.result(name).num_cached_tokens

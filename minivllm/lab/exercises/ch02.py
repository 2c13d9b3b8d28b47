"""Chapter 02: the largest hole, and who may come in. Both are compared with what the engine's own allocator says."""

import random
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import numpy as np

from minivllm.allowed import shown
from minivllm.core.contiguous import FirstFit
from minivllm.lab.grading import exercise, require, returned

Extent = tuple[int, int]


def memories(count: int = 200, seed: int = 0) -> Iterator[tuple[int, list[Extent], FirstFit]]:
    """Random memories as first-fit leaves them: size, extents in use in any order, and the allocator."""
    rng = random.Random(seed)
    for _ in range(count):
        size = rng.randint(4, 80)
        allocator, used = FirstFit(size), list[Extent]()
        for _ in range(rng.randint(1, 12)):
            if used and rng.random() < 0.45:
                allocator.free(*used.pop(rng.randrange(len(used))))
            elif found := allocator.allocate(rng.randint(1, max(1, size // 4))):
                used.append(found)
        rng.shuffle(used)
        yield size, used, allocator


@exercise(
    "02.largest_hole",
    hints=[
        "Draw the row of slots and colour what is in use. Holes are before the first piece, between two, behind the last.",
        "Sort the pieces by their start. The hole before a piece goes from the end of the one before it to its start.",
        "for start, length in sorted(extents): the hole is start - at; then at = start + length. At the end: size - at.",
    ],
)
def largest_hole(student: Callable[[int, list[Extent]], int]) -> str:
    """`student(size, extents)`: the length of the longest run of free slots."""
    apart = [(0, 2), (3, 2), (6, 3)]
    require(_number(student(9, list(apart))) != 2, f"9 slots, in use {apart}: holes apart do not add up: 1 and 1, so 1")
    for size, extents, right, why in (
        (9, apart, 1, "two holes apart, of 1 and 1 slots, so the largest has 1"),
        (9, [(0, 1), (4, 1), (6, 3)], 3, "the largest hole, not the last one: 1 to 3 has 3 slots"),
        (10, [(3, 2), (7, 1)], 3, "slots 0 to 2 are free before the first piece: 3"),
        (10, [(0, 2), (6, 4)], 4, "slots 2 to 5 lie between the two pieces: 4"),
        (10, [(0, 3)], 7, "slots 3 to 9 are free behind the last piece: 7"),
        (10, [], 10, "nothing is in use, so all 10 slots are one hole"),
        (6, [(0, 6)], 0, "everything is in use, so the largest hole has 0 slots"),
        (10, [(6, 4), (0, 2)], 4, "the pieces come in any order: sort them by start; the hole is 2 to 5, 4 slots"),
    ):
        got = _number(student(size, list(extents)))
        require(got == right, f"{size} slots, in use {extents}: {why}. You said {got}")
    tried = 0
    for size, extents, allocator in memories():
        holes = [length for _, length in allocator.holes()]
        got, right = _number(student(size, list(extents))), max(holes, default=0)
        require(got == right, f"{size} slots, in use {extents}: the engine has holes of {holes}, you said {got}")
        tried += 1
    return f"as the engine's own allocator on {tried} random memories"


@exercise(
    "02.can_admit",
    hints=[
        "What does a contiguous request need that a paged one does not? One asks about each hole, the other about all.",
        "Contiguous: is there a hole of at least `tokens` slots? Paged: count the whole blocks in all holes, and the need.",
        "Paged: sum(hole // block_size for hole in holes) against tokens / block_size rounded up: -(-tokens // block_size).",
    ],
)
def can_admit(student: Callable[..., Any]) -> str:
    """`student(tokens, holes, block_size=None)`: whether a request of that many tokens can start."""
    for tokens, holes, size, right, why in (
        (8, [5, 5], None, False, "10 slots are free, but no hole has 8: contiguous needs one piece"),
        (8, [3, 8], None, True, "the second hole has exactly 8 slots, which is enough"),
        (8, [], None, False, "there is no hole at all"),
        (8, [4, 4], 4, True, "two blocks are free and two are needed; where they lie does not matter"),
        (9, [4, 4], 4, False, "9 tokens need 3 blocks of 4, round up; 2 are free"),
        (8, [], 4, False, "there is no free block at all"),
        (1, [3, 3], 4, False, "no hole holds a whole block of 4: 3 + 3 slots are no block"),
        (12, [6, 6], 4, False, "a hole of 6 holds one block of 4: two blocks are free, and 3 are needed"),
    ):
        got = _truth(student(tokens, list(holes), size))
        layout = "contiguous" if size is None else f"paged, block_size {size}"
        require(got is right, f"{tokens} tokens, holes {holes}, {layout}: {right}, since {why}")
    tried = _against_the_allocator(student)
    return f"one hole or any blocks: right for {tried} requests"


def _number(got: Any) -> Any:
    require(isinstance(returned(got), Real) and not isinstance(got, bool), f"give a number of slots, not {shown(got)}")
    return got


def _truth(got: Any) -> bool:
    require(isinstance(returned(got), bool | np.bool_), f"say True or False, not {shown(got)}")
    return bool(got)


def _against_the_allocator(student: Callable[..., Any]) -> int:
    rng, tried = random.Random(1), 0
    for size, _, allocator in memories(seed=1):
        holes = [length for _, length in allocator.holes()]
        tokens, block = rng.randint(1, max(2, size // 2)), rng.choice((1, 2, 4, 8))
        aligned = [hole // block * block for hole in holes]
        for given, layout, right in (
            (holes, None, allocator.allocate(tokens) is not None),
            (aligned, block, sum(aligned) // block >= -(-tokens // block)),
            (holes, block, sum(aligned) // block >= -(-tokens // block)),
        ):
            got = _truth(student(tokens, list(given), layout))
            where = "contiguous" if layout is None else f"block_size {block}"
            require(got is right, f"{tokens} tokens, holes {given}, {where}: the engine says {right}, you {got}")
            tried += 1
    return tried

"""Chapter 03: from a position to its slot, and from a length to its blocks; both are tried on a live engine."""

from collections.abc import Callable

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.lab.grading import exercise, require, returned


@exercise(
    "03.slot",
    hints=[
        "First find the logical block that the position is in, then ask the table where that block lies.",
        "pos // B is the logical block, table[pos // B] the physical one, pos % B the place inside it.",
        "A physical block b begins at slot b * B, so the answer is table[pos // B] * B + pos % B.",
    ],
)
def slot(student: Callable[[list[int], int, int], int]) -> str:
    """The slot of a position: checked on small tables, then on every position of two live requests."""
    got = returned(student([7, 3, 5], 9, 4))
    require(got != 9, "slot 9 is position 9 itself: that is true only if the blocks lie in order; ask the table")
    require(got != 5, "5 is a block, not a slot: with block_size 4, block 5 begins at slot 20")
    require(
        got != 20,
        "20 is where the block begins, the slot of position 8: add the offset pos % B, and count positions from 0",
    )
    require(got != 6, "table[2] is 5, a block. A block has B slots, so it begins at 5 * 4: multiply before you add")
    require(got != 13, "that is block 3: you asked table[9 % 4]; the logical block is 9 // 4, the rest its place in it")
    require(got == 21, f"table [7, 3, 5], position 9, block_size 4: table[2] = 5, offset 1, so slot 21, not {got!r}")
    got = student([7, 3, 5], 3, 4)
    require(got == 31, f"table [7, 3, 5], position 3, block_size 4 is the last of block 7: slot 31, not {got!r}")
    got = student([2, 0, 7, 5, 6], 17, 16)
    require(got == 1, f"with block_size 16, position 17 is token 1 of table[1] = 0: slot 1, not {got!r}; do you use B?")
    got = student([4, 1, 6], 7, 3)
    require(got == 19, f"with block_size 3, position 7 is token 1 of table[2] = 6: slot 19, not {got!r}; do you use B?")
    engine = two_requests(block_size=4)
    taken: dict[int, str] = {}
    for request in engine.snapshot().requests:
        table = list(request.table)
        for position in range(request.computed):
            right = table[position // 4] * 4 + position % 4
            got = student(table, position, 4)
            require(got == right, f"{request.id}, table {table}, position {position}: slot {right}, not {got!r}")
            taken[got] = request.id
    return f"{len(taken)} tokens of two live requests, each in a slot of its own"


@exercise(
    "03.blocks_needed",
    hints=[
        "How many blocks of 16 do 16 tokens need? And 17?",
        "It is a division that rounds up: a block that is begun is a block that is needed.",
        "-(-n // B), or (n + B - 1) // B. No floats: a context of a million tokens must be exact too.",
    ],
)
def blocks_needed(student: Callable[[int, int], int]) -> str:
    """Blocks for n tokens: at the edges, then against what a live engine takes."""
    got = returned(student(17, 16))
    require(got != 1, "17 tokens do not fit into one block of 16: round up, not down")
    require(got == 2, f"17 tokens in blocks of 16 need 2, not {got!r}")
    got = student(16, 16)
    require(got != 2, "16 tokens fill one block of 16 exactly: no second one is begun")
    require(got == 1, f"16 tokens in blocks of 16 need 1, not {got!r}")
    got = student(0, 16)
    require(got == 0, f"no tokens need no block, not {got!r}")
    got = student(9, 4)
    require(got == 3, f"9 tokens in blocks of 4 need 3, not {got!r}: blocks have B slots")
    huge = 10**17  # and as large a block: who counts blocks one by one is not kept waiting
    require(
        student(huge + 1, huge) == 2,
        f"{huge + 1} tokens in blocks of {huge} need 2: with floats it is inexact; use whole numbers, // and not /",
    )
    for size in (1, 4, 16):
        engine = two_requests(size)
        for request in engine.snapshot().requests:
            got = student(request.computed, size)
            require(
                got == len(request.table),
                f"{request.id} has {request.computed} tokens; with block_size {size} the engine holds "
                f"{len(request.table)} blocks for it, not {got!r}",
            )
    return "as many as the engine takes, at every block size"


def two_requests(block_size: int) -> Engine:
    """A simulated engine in the middle of two requests that have grown in turn, so that their blocks interleave."""
    engine = Engine(EngineConfig(block_size=block_size, num_blocks=128))
    for first, length in ((100, 6), (200, 5)):
        engine.add(list(range(first, first + length)), SamplingParams(temperature=0, max_tokens=24))
    engine.run(max_steps=12)
    return engine

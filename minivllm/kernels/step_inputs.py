"""Prepare a step, and take in its result, without the host: a sampled token goes to the next step on the device.

The state of all requests lives in three tensors, a line per request ("seat"): its tokens, how many there are, its
block table. The host only says which seats take part and how much they feed. `step_inputs` gathers what the kernels
need to know (a `StepBatch`), and `append_tokens` writes the sampled tokens behind the others. Between the two the
host need not know any token, which is what lets one CUDA graph hold a whole decode step and the next one be launched
before this one's tokens are read.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from minivllm.kernels.launch import next_power_of_2

BLOCK = 256


@triton.jit
def inputs_kernel(
    seats, starts, query_starts, tokens, lengths, tables,
    token_ids, positions, slots, context_lens, block_tables, token_stride, table_stride, width,
    PAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK of the tokens that one row feeds, and BLOCK entries of its block table."""
    row, part = tl.program_id(0), tl.program_id(1)
    seat = tl.load(seats + row)
    live = seat >= 0
    seat = tl.maximum(seat, 0).to(tl.int64)
    first = tl.load(query_starts + row)
    fed = tl.load(query_starts + row + 1) - first
    start = tl.load(starts + row)
    start = tl.where(start < 0, tl.load(lengths + seat) - fed, start)  # a decode feeds the newest token
    if part == 0:
        tl.store(context_lens + row, tl.where(live, start + fed, 0))
    i = part * BLOCK + tl.arange(0, BLOCK)
    position = tl.where(live, start + i, 0)
    real = i < tl.where(live, fed, 0)
    token = tl.load(tokens + seat * token_stride + position, mask=real, other=0)
    page = tl.load(tables + seat * table_stride + position // PAGE, mask=real, other=0)
    slot = tl.where(live, page.to(tl.int64) * PAGE + position % PAGE, -1)
    tl.store(token_ids + first + i, token.to(tl.int64), mask=i < fed)
    tl.store(positions + first + i, position, mask=i < fed)
    tl.store(slots + first + i, slot, mask=i < fed)
    used = i < tl.where(live, tl.minimum(tl.cdiv(start + fed, PAGE), width), 0)
    entry = tl.load(tables + seat * table_stride + i, mask=used, other=0)
    tl.store(block_tables + row.to(tl.int64) * width + i, entry, mask=used)


def step_inputs(
    seats: Tensor, starts: Tensor, query_starts: Tensor, tokens: Tensor, lengths: Tensor, tables: Tensor,
    block_size: int, max_query_len: int,
    token_ids: Tensor, positions: Tensor, slots: Tensor, context_lens: Tensor, block_tables: Tensor,
) -> None:  # fmt: skip
    """Fill a step's input buffers from the state of its requests.

    Who: `seats: [R] int32` (-1 = padding row: context 0, slot -1), `starts: [R] int32` first position fed (-1 = such
    that the newest token is the last one fed), `query_starts: [R + 1] int32`. State: `tokens: [seats, max_len]` int32
    or int64, `lengths: [seats] int32`, `tables: [seats, W'] int32`. Filled: `token_ids: [T] int64`, and `positions`,
    `slots`, `context_lens`, `block_tables: [R, W]` as in `StepBatch`; table entries past a row's context are left as
    they are. `max_query_len` bounds the tokens of a row.
    """
    width = block_tables.shape[1]
    parts = triton.cdiv(max(max_query_len, width), BLOCK)
    inputs_kernel[(len(seats), parts)](
        seats, starts, query_starts, tokens, lengths, tables, token_ids, positions, slots, context_lens, block_tables,
        tokens.stride(0), tables.stride(0), width, PAGE=block_size, BLOCK=BLOCK, num_warps=2,
    )  # fmt: skip


@triton.jit
def append_kernel(sampled, seats, tokens, lengths, rows, token_stride, limit, BLOCK: tl.constexpr):
    """One program: BLOCK rows."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    seat = tl.load(seats + row, mask=row < rows, other=-1)
    live = seat >= 0
    length = tl.load(lengths + seat, mask=live, other=0)
    live = live & (length < limit)
    token = tl.load(sampled + row, mask=live, other=0)
    tl.store(tokens + seat.to(tl.int64) * token_stride + length, token.to(tokens.dtype.element_ty), mask=live)
    tl.store(lengths + seat, length + 1, mask=live)


def append_tokens(sampled: Tensor, seats: Tensor, tokens: Tensor, lengths: Tensor) -> None:
    """Write `sampled: [S] int64` behind the tokens of `seats: [S] int32` (-1 = nobody's), and count it in `lengths`.

    A seat may appear once. A request of max_len tokens stays as it is.
    """
    rows = len(seats)
    block = min(128, next_power_of_2(rows))
    append_kernel[(triton.cdiv(rows, block),)](
        sampled, seats, tokens, lengths, rows, tokens.stride(0), tokens.shape[1], BLOCK=block, num_warps=1
    )

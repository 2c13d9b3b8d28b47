"""Decode attention: one new token per request against all its pages, read once at close to the speed of the memory.

A program takes one work item (a piece of one request's context) and one key head. The query heads that share the key
head are the rows of a tile, so a key is read once for all of them; they are repeated to the 16 rows that a tensor
core multiplies. The new token never goes through memory: its program norms, rotates and stores it, and starts the
online softmax with it.

Work items are sorted longest first, or the last program to start would be the longest; few requests are cut into
pieces of one size, so that every multiprocessor has several programs and all end together (`plan_kernel`). Source:
Kwon et al. 2023, section 4.3; Dao et al. 2023.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from minivllm.kernels.batch import StepBatch
from minivllm.kernels.launch import compute_dtype, multiprocessors, next_power_of_2, programmatic_launch
from minivllm.kernels.pieces import merge_pieces, store_piece
from minivllm.kernels.store import as_stored, load_heads, norm_and_rotate

TILE = 32  # tokens per iteration; small tiles leave room for many programs on a multiprocessor
LEAST = 192  # tokens of a piece worth the merging, if the GPU is not idle otherwise
MAX_PIECES = 32  # of one request


class DecodePlan(NamedTuple):
    """Which program does what, made once per step for all layers. N follows from the shapes, so a graph can hold it."""

    items: (
        Tensor  # [N, 8] int32: row, token, position, earlier tokens begin : end, the row's first piece, piece, pieces
    )
    used: Tensor  # [1] int32: items in use
    counters: Tensor  # [R, Hkv] int32: pieces of a row and head that are done
    partial: Tensor  # [N, Hq, D] float32: outputs of pieces (empty if no row can be split)
    log_sums: Tensor  # [N, Hq] float32: their weights


@triton.jit
def plan_kernel(
    context_lens, query_starts, items, count, counters, rows, busy, idle, HKV: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCK_H: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, LEAST: tl.constexpr,
    MAX_PIECES: tl.constexpr,
):  # fmt: skip
    """One program: one row writes its work items to their places in the order, longest first.

    A row is some pieces of `size` tokens, the same for all rows, and one last piece, which may be a little longer.
    """
    row = tl.program_id(0)
    r = tl.arange(0, BLOCK_R)
    context = tl.load(context_lens + r, mask=r < rows, other=0)
    start = tl.load(query_starts + r, mask=r < rows, other=0)
    fed = tl.load(query_starts + r + 1, mask=r < rows, other=0) - start
    decodes = (context > 0) & (fed == 1)
    earlier = tl.where(decodes, context - 1, 0)
    longest = tl.max(earlier)
    size = longest + 1  # rows stay whole
    if SPLIT:
        total = tl.sum(earlier)
        size = tl.maximum(tl.cdiv(total, busy), tl.minimum(LEAST, tl.cdiv(total, idle)))
        size = tl.maximum(tl.maximum(size, tl.cdiv(longest, MAX_PIECES - 1)), 2 * TILE)
        size = tl.where(3 * longest <= 4 * size, longest + 1, tl.cdiv(size, TILE) * TILE)  # about equal: whole as well
    equal = tl.maximum(earlier - size // 32, 0) // size  # pieces before the last one; a crumb is no piece
    last = earlier - equal * size
    pieces = tl.where(decodes, equal + 1, 0)

    mine = r == row
    my_equal, my_last = tl.sum(tl.where(mine, equal, 0)), tl.sum(tl.where(mine, last, 0))
    first = tl.sum(tl.where(r < row, pieces, 0))  # where this row's scratch begins
    longer = decodes & ((last > my_last) | ((last == my_last) & (r < row)))
    before_last = tl.sum(longer.to(tl.int32)) + tl.where(my_last > size, 0, tl.sum(equal))
    before_equal = tl.sum((last > size).to(tl.int32)) + tl.sum(tl.where(r < row, equal, 0))
    p = tl.arange(0, MAX_PIECES)
    used = p < tl.sum(tl.where(mine, pieces, 0))
    item = items + tl.where(p < my_equal, before_equal + p, before_last) * 8
    tl.store(item, row, mask=used)
    tl.store(item + 1, tl.load(query_starts + row), mask=used)
    tl.store(item + 2, tl.load(context_lens + row) - 1, mask=used)
    tl.store(item + 3, p * size, mask=used)
    tl.store(item + 4, p * size + tl.where(p < my_equal, size, my_last), mask=used)
    tl.store(item + 5, first, mask=used)
    tl.store(item + 6, p, mask=used)
    tl.store(item + 7, my_equal + 1, mask=used)
    h = tl.arange(0, BLOCK_H)
    tl.store(counters + row * HKV + h, 0, mask=h < HKV)
    if row == 0:
        tl.store(count, tl.sum(pieces))


def plan_decode(
    batch: StepBatch, q_heads: int, kv_heads: int, head_dim: int, itemsize: int, per_multiprocessor: int = 6
) -> DecodePlan:
    """Work items for the rows of `batch` that feed one token.

    Rows are cut into pieces so large that there are about `per_multiprocessor` programs on each multiprocessor, or
    fewer (but two) where pieces would be shorter than LEAST tokens. Many rows stay whole: then N is R, and no program
    finds itself without work. `itemsize`: bytes of a number in the pool.
    """
    rows, device = len(batch.context_lens), batch.context_lens.device
    busy = max(1, per_multiprocessor * multiprocessors() // kv_heads)  # items that fill the GPU
    split = rows < (1.25 if itemsize > 1 else 0.5) * busy  # 8 bits are read in half the time, merging takes as long
    items = min(busy + rows, MAX_PIECES * rows) if split else rows
    scratch = items * q_heads if split else 0
    plan = DecodePlan(
        items=torch.empty(items, 8, dtype=torch.int32, device=device),
        used=torch.empty(1, dtype=torch.int32, device=device),
        counters=torch.empty(rows, kv_heads, dtype=torch.int32, device=device),
        partial=torch.empty(scratch, head_dim, dtype=torch.float32, device=device),
        log_sums=torch.empty(scratch, dtype=torch.float32, device=device),
    )
    plan_kernel[(rows,)](
        batch.context_lens, batch.query_starts, plan.items, plan.used, plan.counters, rows, busy,
        max(1, 2 * multiprocessors() // kv_heads), HKV=kv_heads,
        BLOCK_R=next_power_of_2(rows), BLOCK_H=next_power_of_2(kv_heads), SPLIT=split, TILE=TILE, LEAST=LEAST,
        MAX_PIECES=MAX_PIECES,
        num_warps=4,
    )  # fmt: skip
    return plan


@triton.jit
def decode_kernel(
    qkv, k_pool, v_pool, out, q_norm, k_norm, cos_sin, slots, tables,
    items, count, counters, partial, log_sums, eps, scale, qkv_stride, table_stride,
    HQ: tl.constexpr, HKV: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, GROUP: tl.constexpr,
    TIMES: tl.constexpr, SPLIT: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr, NORM: tl.constexpr,
    ROPE: tl.constexpr, DOT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program: one work item, one key head. `scale` includes log2(e), so that exp2 gives the softmax."""
    head, item = tl.program_id(0), tl.program_id(1)
    used = item < tl.load(count)
    record = items + item * 8
    row, token = tl.load(record, mask=used, other=0), tl.load(record + 1, mask=used, other=0).to(tl.int64)
    position = tl.load(record + 2, mask=used, other=0)
    begin, end = tl.load(record + 3, mask=used, other=0), tl.load(record + 4, mask=used, other=0)
    first, piece = tl.load(record + 5, mask=used, other=0), tl.load(record + 6, mask=used, other=0)
    pieces = tl.load(record + 7, mask=used, other=0)
    # Lanes past the end read the last valid token again and score -inf. The page index of the next tile is loaded one
    # iteration early: an index loaded where it is used would break the pipeline of the loads that depend on it.
    table = tables + row.to(tl.int64) * table_stride
    lane = tl.arange(0, TILE)
    last = tl.maximum(end - 1, 0)
    at = tl.minimum(begin + lane, last)
    page = tl.load(table + at // PAGE)

    group: tl.constexpr = HQ // HKV
    g, d = tl.arange(0, GROUP)[:, None], tl.arange(0, BLOCK_D)[None, :]
    angles = cos_sin + position.to(tl.int64) * D
    heads = qkv + token * qkv_stride
    inside = (g < group) & (d < D)
    if PDL:
        gdc_wait()  # for q, k and v; the plan and the pages were there before the kernel that makes them
    if not used:
        return
    q = norm_and_rotate(heads + (head * group + g) * D, q_norm, inside, angles, d, eps, D, NORM, ROPE)
    q = repeat(q.to(qkv.dtype.element_ty).to(DOT), TIMES)  # [16 or more, BLOCK_D]
    m = tl.full([GROUP * TIMES], float("-inf"), tl.float32)  # largest score
    l = tl.zeros([GROUP * TIMES], tl.float32)  # sum of exp2(scale * (score - m))
    acc = tl.zeros([GROUP * TIMES, BLOCK_D], tl.float32)
    if end == position if SPLIT else True:  # the piece that ends where the new token begins takes it along
        new = heads + (HQ + head + tl.zeros([1, 1], tl.int32)) * D  # its key
        k = as_stored(norm_and_rotate(new, k_norm, d < D, angles, d, eps, D, NORM, ROPE), k_pool)  # [1, BLOCK_D]
        v = as_stored(tl.load(new + HKV * D + d, mask=d < D, other=0.0), v_pool)
        slot = tl.load(slots + token)
        written = d < tl.where(slot >= 0, D, 0)
        tl.store(k_pool + (slot * HKV + head) * D + d, k, mask=written)
        tl.store(v_pool + (slot * HKV + head) * D + d, v, mask=written)
        m = tl.sum(q.to(tl.float32) * k.to(tl.float32), axis=1)
        l += 1.0
        acc += v.to(tl.float32)

    for start in range(begin, end, TILE):
        offset = (page * PAGE + at % PAGE).to(tl.int64)[:, None] * (HKV * D)  # added last: one multiply-add per address
        keys = load_heads(k_pool + head * D + d + offset, d, D).to(DOT)  # [TILE, BLOCK_D]
        values = load_heads(v_pool + head * D + d + offset, d, D).to(DOT)
        at = tl.minimum(start + TILE + lane, last)
        page = tl.load(table + at // PAGE)
        scores = tl.dot(q, tl.trans(keys), input_precision="tf32x3")  # [16 or more, TILE]
        scores = tl.where((start + lane < end)[None, :], scores, float("-inf"))
        highest = tl.maximum(m, tl.max(scores, axis=1))
        weights = tl.exp2(scores * scale - (highest * scale)[:, None])  # one multiply-add
        shrink = tl.exp2((m - highest) * scale)
        l = l * shrink + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(DOT), values, acc * shrink[:, None], input_precision="tf32x3")
        m = highest
    if PDL:
        gdc_launch_dependents()

    i = tl.arange(0, GROUP * TIMES)[:, None]
    q_head = head * group + i // TIMES
    real = (i % TIMES == 0) & (i // TIMES < group) & (d < D)
    if SPLIT and pieces > 1:
        scratch = (first + piece).to(tl.int64) * HQ + q_head
        store_piece(acc, m * scale, l, partial + scratch * D + d, log_sums + scratch, real)
        tl.debug_barrier()  # every thread's part is written before this program is counted
        if tl.atomic_add(counters + row * HKV + head, 1, sem="acq_rel") == pieces - 1:  # the last one merges
            whole = (first * HQ + head * group).to(tl.int64)
            e = tl.arange(0, GROUP * BLOCK_D)
            merged = merge_pieces(partial + whole * D, log_sums + whole, pieces, HQ, e, e < group * D, D)
            tl.store(out + token * (HQ * D) + head * (group * D) + e, merged, mask=e < group * D)
            tl.store(counters + row * HKV + head, 0)  # for the next launch
    else:
        tl.store(out + token * (HQ * D) + q_head * D + d, acc / l[:, None], mask=real)


@triton.jit
def repeat(x, TIMES: tl.constexpr):
    """`x: [N, M]` -> [N * TIMES, M], every row TIMES times in a row."""
    return tl.reshape(tl.broadcast_to(x[:, None, :], [x.shape[0], TIMES, x.shape[1]]), [x.shape[0] * TIMES, x.shape[1]])


def paged_decode(
    qkv: Tensor, kv_layer: Tensor, q_norm: Tensor | None, k_norm: Tensor | None, eps: float, cos_sin: Tensor | None,
    batch: StepBatch, plan: DecodePlan, out: Tensor, planned_now: bool = True,
) -> None:  # fmt: skip
    """Store and attend for the rows of `batch` that feed one token; writes their part of `out: [T, Hq * D]`.

    Unless `plan` was made just now, the kernel may start while the one before it still runs.

    `qkv: [T, (Hq + 2 * Hkv) * D]`; `kv_layer: [2, num_blocks, block_size, Hkv, D]`; `q_norm, k_norm: [D]`;
    `cos_sin: [max_position, D]` float32. Padding rows and rows that feed several tokens are not touched.
    """
    block_size, kv_heads, head_dim = kv_layer.shape[2:]
    q_heads = qkv.shape[1] // head_dim - 2 * kv_heads
    group, split = next_power_of_2(q_heads // kv_heads), len(plan.log_sums) > 0
    eight_bit, pdl = kv_layer.element_size() == 1, programmatic_launch()
    norm, rope = q_norm is not None and k_norm is not None, cos_sin is not None
    decode_kernel[(kv_heads, len(plan.items))](
        qkv, kv_layer[0], kv_layer[1], out, q_norm if norm else qkv, k_norm if norm else qkv, cos_sin if rope else qkv,
        batch.slots, batch.block_tables, *plan,
        eps, head_dim**-0.5 * 1.4426950408889634, qkv.stride(0), batch.block_tables.stride(0),
        HQ=q_heads, HKV=kv_heads, D=head_dim, BLOCK_D=next_power_of_2(head_dim),
        GROUP=group, TIMES=max(1, 16 // group),
        SPLIT=split, PAGE=block_size, TILE=TILE, NORM=norm, ROPE=rope,
        DOT=compute_dtype(kv_layer.dtype), PDL=pdl, num_stages=3 if head_dim <= 128 else 2,
        num_warps=2 if split and eight_bit else 1,
        maxnreg=None if eight_bit else 255,  # by itself the compiler takes 168, and spills the page it has just loaded
        launch_pdl=pdl and not planned_now,
    )  # fmt: skip

"""Prefill attention: many new tokens per request, causal, over its cached prefix and the tokens just written.

A program takes a tile of rows: TOKENS new tokens times the query heads that share one key head. Requests of any lengths stand
side by side without padding: the tiles of request r are numbered from `query_starts[r] // TOKENS + r`, so tile t belongs to the
last request whose number is not above t. Late tiles see the longest contexts and go first. Few tiles over a long prefix (a cache hit!)
would leave the GPU idle: then the context is cut into pieces as in decode.

Sources: Dao 2023 (FlashAttention-2); the tile search is that of vLLM's unified Triton attention.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from minivllm.kernels.batch import StepBatch
from minivllm.kernels.launch import compute_dtype, multiprocessors, next_power_of_2
from minivllm.kernels.pieces import merge_pieces, store_piece


class PrefillPlan(NamedTuple):
    """The shape of the launch, and scratch for the pieces of a context; made once per step."""

    block_m: int  # rows of a tile
    tiles: int
    pieces: int  # of every context
    partial: Tensor  # [pieces, T, Hq, D] float32: outputs of the pieces (empty for one piece)
    log_sums: Tensor  # [pieces, T, Hq] float32: their weights


@triton.jit
def sweep(
    q, acc, m, l, k_pool, v_pool, table, begin, end, position, context, head, d, scale,
    HKV: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr, MASKED: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """Online softmax over the keys begin : end; MASKED where some of the rows may not see all of them."""
    lane = tl.arange(0, TILE)
    at = tl.minimum(begin + lane, context - 1)
    page = tl.load(table + at // PAGE)
    for start in range(begin, end, TILE):
        offset = ((page.to(tl.int64) * PAGE + at % PAGE) * HKV + head) * D  # [TILE]
        keys = tl.load(k_pool + offset[:, None] + d, mask=d < D, other=0.0).to(DOT)
        values = tl.load(v_pool + offset[:, None] + d, mask=d < D, other=0.0).to(DOT)
        at = tl.minimum(start + TILE + lane, context - 1)
        page = tl.load(table + at // PAGE)
        scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale  # [BLOCK_M, TILE]
        if MASKED:
            visible = (start + lane[None, :] <= position[:, None]) & (start + lane < end)[None, :]
            scores = tl.where(visible, scores, float("-inf"))
        highest = tl.maximum(m, tl.max(scores, axis=1))
        safe = tl.where(highest == float("-inf"), 0.0, highest) if MASKED else highest  # a row that saw nothing yet
        weights = tl.exp2(scores - safe[:, None])
        shrink = tl.exp2(m - safe)
        l = l * shrink + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(DOT), values, acc * shrink[:, None], input_precision="ieee")
        m = highest
    return acc, m, l


@triton.jit
def prefill_kernel(
    q_in, k_pool, v_pool, out, query_starts, context_lens, tables, partial, log_sums, rows, pieces, stride, scale, table_stride,
    HQ: tl.constexpr, HKV: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_R: tl.constexpr, TOKENS: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """One program: one key head, one tile of rows, one piece of the context. `scale` includes log2(e)."""
    head, piece = tl.program_id(0), tl.program_id(2)
    tile = tl.num_programs(1) - 1 - tl.program_id(1)
    r = tl.arange(0, BLOCK_R)
    starts = tl.load(query_starts + r, mask=r < rows, other=0)
    row = tl.sum(((starts // TOKENS + r <= tile) & (r < rows)).to(tl.int32)) - 1
    first = tl.load(query_starts + row)
    fed = tl.load(query_starts + row + 1) - first
    context = tl.load(context_lens + row)
    begin_token = (tile - first // TOKENS - row) * TOKENS  # the tile's first token within the row
    if (begin_token >= fed) | (fed == 1) | (context == 0):  # nothing left, a decode (paged_decode.py), padding
        return

    group: tl.constexpr = HQ // HKV
    i, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)[None, :]
    token = begin_token + i // group
    valid = (i < TOKENS * group) & (token < fed)
    position = context - fed + token  # [BLOCK_M]
    keep = valid[:, None] & (d < D)
    where = (first + token).to(tl.int64)[:, None] * (HQ * D) + (head * group + i % group)[:, None] * D + d
    q = tl.load(q_in + where, mask=keep, other=0.0).to(DOT)

    end = tl.minimum(context, context - fed + begin_token + TOKENS)  # what the last token of the tile sees
    full = (context - fed + begin_token + 1) // TILE * TILE  # what all of them see, in whole tiles
    share = tl.cdiv(tl.cdiv(end, pieces), TILE) * TILE
    low, high = piece * share, tl.minimum((piece + 1) * share, end)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    table = tables + row.to(tl.int64) * table_stride
    acc, m, l = sweep(
        q, acc, m, l, k_pool, v_pool, table, low, tl.minimum(high, full), position, context, head, d, scale,
        HKV, D, PAGE, TILE, False, DOT,
    )  # fmt: skip
    acc, m, l = sweep(
        q, acc, m, l, k_pool, v_pool, table, tl.maximum(low, full), high, position, context, head, d, scale,
        HKV, D, PAGE, TILE, True, DOT,
    )  # fmt: skip

    if pieces == 1:
        tl.store(out + where, acc / l[:, None], mask=keep)
    else:  # scratch: [pieces, T, Hq, D]
        at = piece.to(tl.int64) * stride * D + where
        store_piece(acc, m, l, partial + at, log_sums + piece * stride + (first + token) * HQ + head * group + i % group, keep)


@triton.jit
def merge_kernel(
    out, partial, log_sums, query_starts, context_lens, rows, pieces, stride,
    HQ: tl.constexpr, D: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """One program: one token's heads. Decodes and padding were not attended here, so they have nothing to merge."""
    token = tl.program_id(0)
    r = tl.arange(0, BLOCK_R)
    starts = tl.load(query_starts + r, mask=r < rows, other=0)
    row = tl.sum(((starts <= token) & (r < rows)).to(tl.int32)) - 1
    fed = tl.load(query_starts + row + 1) - tl.load(query_starts + row)
    if (fed == 1) | (tl.load(context_lens + row) == 0):
        return
    e = tl.program_id(1) * BLOCK_E + tl.arange(0, BLOCK_E)
    at = token.to(tl.int64) * HQ
    merged = merge_pieces(partial + at * D, log_sums + at, pieces, stride, e, e < HQ * D, D, 4)
    tl.store(out + at * D + e, merged, mask=e < HQ * D)


def plan_prefill(batch: StepBatch, tokens: int, q_heads: int, kv_heads: int, head_dim: int) -> PrefillPlan:
    """Tile height and number of pieces from what the host knows: T, R and the longest row and context."""
    device, group = batch.context_lens.device, q_heads // kv_heads
    longest = min(batch.max_query_len, tokens) * group
    block_m = max(16, next_power_of_2(group), min(128, next_power_of_2(longest)))
    rows = len(batch.context_lens)
    tiles = tokens // (block_m // group) + rows
    idle = 2 * multiprocessors() // (tiles * kv_heads)
    pieces = max(1, min(idle, triton.cdiv(batch.max_context_len, 128), 16))
    scratch = pieces * tokens * q_heads if pieces > 1 else 0
    partial = torch.empty(scratch, head_dim, dtype=torch.float32, device=device)
    return PrefillPlan(block_m, tiles, pieces, partial, torch.empty(scratch, dtype=torch.float32, device=device))


def paged_prefill(q: Tensor, kv_layer: Tensor, batch: StepBatch, plan: PrefillPlan, out: Tensor) -> None:
    """Causal attention for the rows of `batch` that feed several tokens; writes their part of `out: [T, Hq * D]`.

    `q: [T, Hq * D]`, normed and rotated; the step's own keys and values are already in `kv_layer` (`store.py`).
    """
    block_size, kv_heads, head_dim = kv_layer.shape[2:]
    q_heads = q.shape[1] // head_dim
    rows, stride = len(batch.context_lens), len(q) * q_heads
    prefill_kernel[(kv_heads, plan.tiles, plan.pieces)](
        q, kv_layer[0], kv_layer[1], out, batch.query_starts, batch.context_lens, batch.block_tables,
        plan.partial, plan.log_sums, rows, plan.pieces, stride,
        head_dim**-0.5 * 1.4426950408889634, batch.block_tables.stride(0),
        HQ=q_heads, HKV=kv_heads, D=head_dim, BLOCK_D=next_power_of_2(head_dim), BLOCK_M=plan.block_m,
        BLOCK_R=next_power_of_2(rows), TOKENS=plan.block_m // (q_heads // kv_heads), PAGE=block_size,
        TILE=64 if plan.block_m == 128 else 32, DOT=compute_dtype(kv_layer.dtype),
        num_warps=8 if plan.block_m == 128 else 4, num_stages=3 if head_dim <= 128 else 2,
    )  # fmt: skip
    if plan.pieces > 1:
        block_e = min(1024, next_power_of_2(q_heads * head_dim))
        merge_kernel[(len(q), triton.cdiv(q_heads * head_dim, block_e))](
            out, plan.partial, plan.log_sums, batch.query_starts, batch.context_lens, rows, plan.pieces, stride,
            HQ=q_heads, D=head_dim, BLOCK_R=next_power_of_2(rows), BLOCK_E=block_e, num_warps=4,
        )  # fmt: skip

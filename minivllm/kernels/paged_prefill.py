"""Prefill attention: many new tokens per request, causal, over its cached prefix and the tokens just written.

A program takes a tile of rows: TOKENS new tokens times the query heads that share one key head. Requests of any
lengths stand side by side without padding: the tiles of request r are numbered from `query_starts[r] // TOKENS + r`,
so tile t belongs to the last request whose number is not above t. Late tiles see the longest contexts and go first.
Few tiles over a long prefix (a cache hit!) would leave the GPU idle: then the context is cut into pieces as in
decode.

Sources: Dao 2023 (FlashAttention-2); the tile search is that of vLLM's unified Triton attention.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from minivllm.kernels.batch import StepBatch
from minivllm.kernels.launch import compute_dtype, multiprocessors, next_power_of_2, shared_memory
from minivllm.kernels.pieces import merge_pieces, store_piece
from minivllm.kernels.store import load_heads

HIGH = 128  # rows, and keys at a time, of a high tile: its program has a multiprocessor to itself
LONG = 4096  # keys that a row must see for a high tile to pay


class PrefillPlan(NamedTuple):
    """The shape of the launch, and scratch for the pieces of a context; made once per step."""

    block_m: int  # rows of a tile
    keys: int  # per iteration
    tiles: int
    pieces: int  # of every context
    partial: Tensor  # [pieces, T, Hq, D] float32: outputs of the pieces (empty for one piece)
    log_sums: Tensor  # [pieces, T, Hq] float32: their weights


@triton.jit
def sweep(
    q, acc, m, l, source, k_head, v_head, value_row, table, first, begin, end, position, context, d, scale,
    HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr, FROM: tl.constexpr,
    STAGES: tl.constexpr, MASKED: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """Online softmax over the keys begin : end; MASKED where some of the rows may not see all of them.

    FROM "step": the request's tokens are rows first, first + 1, ... of `source`, a tensor descriptor. "pages": a tile
    lies within one page, and `source` describes the pool. "slots": pages are small, every token is looked up, and
    `source` is a pointer.
    """
    lane = tl.arange(0, TILE)
    EVEN: tl.constexpr = TILE % PAGE == 0  # then every tile begins with a page, and a lane keeps its place in the page
    value_source = source + value_row.to(tl.int64) * (HEADS * D) if FROM == "slots" else source
    ahead = tl.minimum(begin + lane if FROM == "slots" else begin, context - 1)
    page = tl.load(table + ahead // PAGE) if FROM != "step" else first
    for start in tl.range(begin, end, TILE, num_stages=1 if MASKED else STAGES):  # no buffers for few steps
        if FROM == "slots":
            inside = ((lane if EVEN else start + lane) % PAGE)[:, None] * (HEADS * D) + d  # [TILE, BLOCK_D]
            offset = page.to(tl.int64)[:, None] * (PAGE * HEADS * D)  # added last: one multiply-add per address
            keys = load_heads(source + k_head * D + inside + offset, d, D).to(DOT)
            values = load_heads(value_source + v_head * D + inside + offset, d, D).to(DOT)
            if EVEN and not MASKED:  # whole tiles of whole pages: no lane has to be watched
                page = tl.load(table + lane // PAGE + tl.minimum(start + TILE, end - TILE) // PAGE)
            else:
                page = tl.load(table + tl.minimum(start + TILE + lane, context - 1) // PAGE)
        else:
            row = first + start if FROM == "step" else page * PAGE + start % PAGE
            keys = source.load([row, k_head, 0]).reshape(TILE, d.shape[1]).to(DOT)
            values = source.load([row + value_row, v_head, 0]).reshape(TILE, d.shape[1]).to(DOT)
            if FROM == "pages":
                page = tl.load(table + tl.minimum(start + TILE, context - 1) // PAGE)
        if MASKED:  # what lies behind the context may be NaN, and 0 * NaN is NaN
            values = tl.where((start + lane < context)[:, None], values, 0.0)
        scores = tl.dot(q, tl.trans(keys), input_precision="tf32x3")  # [BLOCK_M, TILE]
        if MASKED:
            visible = (start + lane[None, :] <= position[:, None]) & (start + lane < end)[None, :]
            scores = tl.where(visible, scores, float("-inf"))
        highest = tl.maximum(m, tl.max(scores, axis=1))
        safe = tl.where(highest == float("-inf"), 0.0, highest) if MASKED else highest  # a row that saw nothing yet
        weights = tl.exp2(scores * scale - (safe * scale)[:, None])  # one multiply-add
        shrink = tl.exp2((m - safe) * scale)
        l = l * shrink + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(DOT), values, acc * shrink[:, None], input_precision="tf32x3")
        m = highest
    return acc, m, l


@triton.jit
def prefill_kernel(
    turned, step, cached, value_row, out, query_starts, context_lens, tables, partial, log_sums,
    rows, pieces, stride, scale, table_stride,
    HQ: tl.constexpr, HKV: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_R: tl.constexpr, TOKENS: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr, FROM: tl.constexpr,
    STAGES: tl.constexpr, DOT: tl.constexpr,
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
    from_q = (first + token).to(tl.int64)[:, None] * ((HQ + 2 * HKV) * D) + (head * group + i % group)[:, None] * D + d
    q = tl.load(turned + from_q, mask=keep, other=0.0).to(DOT)

    end = tl.minimum(context, context - fed + begin_token + TOKENS)  # what the last token of the tile sees
    full = (context - fed + begin_token + 1) // TILE * TILE  # what all of them see, in whole tiles
    share = tl.cdiv(tl.cdiv(end, pieces), TILE) * TILE
    low, high = piece * share, tl.minimum((piece + 1) * share, end)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    table = tables + row.to(tl.int64) * table_stride
    full_low, full_high, edge_low = low, tl.minimum(high, full), tl.maximum(low, full)
    if context == fed:  # nothing cached: the keys lie side by side in this step
        acc, m, l = sweep(
            q, acc, m, l, step, HQ + head, HQ + HKV + head, 0, table, first, full_low, full_high, position, context, d,
            scale, HQ + 2 * HKV, D, PAGE, TILE, "step", STAGES, False, DOT,
        )  # fmt: skip
        acc, m, l = sweep(
            q, acc, m, l, step, HQ + head, HQ + HKV + head, 0, table, first, edge_low, high, position, context, d,
            scale, HQ + 2 * HKV, D, PAGE, TILE, "step", STAGES, True, DOT,
        )  # fmt: skip
    else:
        acc, m, l = sweep(
            q, acc, m, l, cached, head, head, value_row, table, first, full_low, full_high, position, context, d, scale,
            HKV, D, PAGE, TILE, FROM, STAGES, False, DOT,
        )  # fmt: skip
        acc, m, l = sweep(
            q, acc, m, l, cached, head, head, value_row, table, first, edge_low, high, position, context, d, scale,
            HKV, D, PAGE, TILE, FROM, STAGES, True, DOT,
        )  # fmt: skip

    if pieces == 1:
        tl.store(out + where, acc / l[:, None], mask=keep)
    else:  # scratch: [pieces, T, Hq, D]
        scratch = piece.to(tl.int64) * stride + ((first + token) * HQ + head * group + i % group)[:, None]
        store_piece(acc, m * scale, l, partial + scratch * D + d, log_sums + scratch, keep)


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
    merged = merge_pieces(partial + at * D, log_sums + at, pieces, stride, e, e < HQ * D, D)
    tl.store(out + at * D + e, merged, mask=e < HQ * D)


def high_tiles_pay(batch: StepBatch, programs: int, kv_layer: Tensor) -> bool:
    """Whether the rows see long contexts, and so many programs fill the GPU, one to a multiprocessor."""
    block_size, _, head_dim = kv_layer.shape[2:]
    seen = batch.max_context_len - batch.max_query_len // 2
    idle = -programs % multiprocessors()  # in the last round
    row_bytes = next_power_of_2(head_dim) * kv_layer.element_size()
    fits = 7 * HIGH * row_bytes + 1024 <= shared_memory()  # the queries, and three buffers of keys and of values
    whole = block_size % 64 > 0 or block_size % HIGH == 0  # the keys of a small tile may be a page, those of a high not
    return seen >= LONG and 8 * idle <= programs and kv_layer.element_size() == 2 and fits and whole


def plan_prefill(batch: StepBatch, tokens: int, q_heads: int, kv_layer: Tensor) -> PrefillPlan:
    """Tile height and number of pieces from what the host knows: T, R, the longest row and context, and the pages.

    Tiles of 64 rows and 64 keys suit most: two programs share a multiprocessor, and one computes while the other waits.
    Where a row sees thousands of keys, fetching them is what takes time: a high tile fetches each for twice the rows.
    """
    device = batch.context_lens.device
    kv_heads, head_dim = kv_layer.shape[3:]
    group = q_heads // kv_heads
    longest = min(batch.max_query_len, tokens) * group
    keys = 64 if next_power_of_2(head_dim) * kv_layer.element_size() <= 512 else 32
    highest = 64 if head_dim <= 128 else 32
    if longest >= HIGH and high_tiles_pay(batch, tokens * group // HIGH * kv_heads, kv_layer):
        highest = keys = HIGH
    block_m = max(16, next_power_of_2(group), min(highest, next_power_of_2(longest)))
    rows = len(batch.context_lens)
    tiles = tokens // (block_m // group) + rows
    live = triton.cdiv(tokens, block_m // group)  # tiles with work, at least
    seats = multiprocessors() * (1 if block_m == keys == HIGH else 2)  # programs that run at once
    pieces = max(1, min(seats // (live * kv_heads), triton.cdiv(batch.max_context_len, 128), 16))
    scratch = pieces * tokens * q_heads if pieces > 1 else 0
    partial = torch.empty(scratch, head_dim, dtype=torch.float32, device=device)
    return PrefillPlan(block_m, keys, tiles, pieces, partial, torch.empty(scratch, dtype=torch.float32, device=device))


def paged_prefill(turned: Tensor, kv_layer: Tensor, batch: StepBatch, plan: PrefillPlan, out: Tensor) -> None:
    """Causal attention for the rows of `batch` that feed several tokens; writes their part of `out: [T, Hq * D]`.

    `turned: [T, Hq + 2 * Hkv, D]`: the step's q, k and v after `store`, which also put k and v into `kv_layer`. A head
    must be a multiple of 16 bytes (ValueError), for the sake of the tensor descriptors.
    """
    blocks, block_size, kv_heads, head_dim = kv_layer.shape[1:]
    for pool in (turned, kv_layer):
        if head_dim * pool.element_size() % 16:
            raise ValueError(f"head_dim {head_dim} in {pool.dtype}: prefill attention needs heads of whole 16 bytes")
    tokens, heads = turned.shape[:2]
    q_heads = heads - 2 * kv_heads
    rows, stride = len(batch.context_lens), tokens * q_heads
    block_d = next_power_of_2(head_dim)
    row_bytes = block_d * kv_layer.element_size()
    box = [plan.keys, 1, block_d]
    in_pages = block_size % plan.keys == 0
    cached = TensorDescriptor.from_tensor(kv_layer.view(-1, kv_heads, head_dim), box) if in_pages else kv_layer
    prefill_kernel[(kv_heads, plan.tiles, plan.pieces)](
        turned, TensorDescriptor.from_tensor(turned, box), cached, blocks * block_size, out,
        batch.query_starts, batch.context_lens, batch.block_tables,
        plan.partial, plan.log_sums, rows, plan.pieces, stride,
        head_dim**-0.5 * 1.4426950408889634, batch.block_tables.stride(0),
        HQ=q_heads, HKV=kv_heads, D=head_dim, BLOCK_D=block_d, BLOCK_M=plan.block_m,
        BLOCK_R=next_power_of_2(rows), TOKENS=plan.block_m // (q_heads // kv_heads), PAGE=block_size,
        TILE=plan.keys, FROM="pages" if in_pages else "slots", DOT=compute_dtype(kv_layer.dtype),
        STAGES=3 if row_bytes <= 256 else 2, num_warps=8 if plan.block_m == HIGH else 4,
    )  # fmt: skip
    if plan.pieces > 1:
        block_e = min(512, next_power_of_2(q_heads * head_dim))
        merge_kernel[(tokens, triton.cdiv(q_heads * head_dim, block_e))](
            out, plan.partial, plan.log_sums, batch.query_starts, batch.context_lens, rows, plan.pieces, stride,
            HQ=q_heads, D=head_dim, BLOCK_R=next_power_of_2(rows), BLOCK_E=block_e, num_warps=4,
        )  # fmt: skip

"""What the kernels must compute, in float64 and without any trick; and steps to compute it on.

The pool of a step is full of NaN but for the tokens its requests have written, its block tables are shuffled, and
their unused entries point nowhere: a kernel that reads what it should not is found out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minivllm.kernels.batch import StepBatch


@dataclass(frozen=True)
class PagedStep:
    """One layer's input of a step, and the step."""

    qkv: Tensor  # [T, (Hq + 2 * Hkv) * D]
    kv_layer: Tensor  # [2, num_blocks, block_size, Hkv, D]
    q_norm: Tensor | None  # [D]
    k_norm: Tensor | None  # [D]
    cos_sin: Tensor | None  # [max_position, D] float32
    batch: StepBatch


def relative_error(found: Tensor, expected: Tensor) -> float:
    """`|found - expected| / |expected|`, in float64; NaN or infinity anywhere gives NaN or infinity."""
    wide = expected.double()
    return float((found.double() - wide).norm() / wide.norm().clamp_min(1e-300))


def paged_step(
    rows: Sequence[tuple[int, int]],
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    block_size: int,
    dtype: torch.dtype,
    *,
    seed: int = 0,
    norm: bool = True,
    rope: bool = True,
    device: torch.device | str = "cpu",
) -> PagedStep:
    """A random step. `rows`: (context, fed), the fed tokens being the last of the context; context 0 = padding row."""
    torch.manual_seed(seed)
    needed = [-(-context // block_size) for context, _ in rows]
    blocks = sum(needed) + 1
    width = max(1, *needed)
    order = torch.randperm(blocks).tolist()
    tables = torch.full((len(rows), width), 2**30, dtype=torch.int32)
    positions: list[int] = []
    slots: list[int] = []
    earlier: list[int] = []
    starts = [0]
    for r, (context, fed) in enumerate(rows):
        pages = [order.pop() for _ in range(needed[r])]
        tables[r, : len(pages)] = torch.tensor(pages, dtype=torch.int32)
        place = [pages[p // block_size] * block_size + p % block_size for p in range(context)]
        cached = max(context - fed, 0)
        earlier += place[:cached]
        positions += range(cached, context) if context else [0] * fed
        slots += place[cached:] if context else [-1] * fed
        starts.append(starts[-1] + fed)
    kv = torch.full((2, blocks * block_size, kv_heads, head_dim), float("nan"), dtype=dtype, device=device)
    at = torch.tensor(earlier, dtype=torch.int64, device=device)
    kv[:, at] = torch.randn(2, len(earlier), kv_heads, head_dim, device=device).to(dtype)
    contexts = torch.tensor([context for context, _ in rows], dtype=torch.int32)
    longest = int(contexts.max())
    half = torch.arange(head_dim // 2) / (head_dim // 2)
    angle = torch.arange(longest + 1)[:, None] * 10000.0**-half
    batch = StepBatch(
        positions=torch.tensor(positions, dtype=torch.int32, device=device),
        slots=torch.tensor(slots, dtype=torch.int64, device=device),
        query_starts=torch.tensor(starts, dtype=torch.int32, device=device),
        context_lens=contexts.to(device),
        block_tables=tables.to(device),
        max_query_len=max(fed for _, fed in rows),
        max_context_len=longest,
        logit_rows=torch.tensor(starts[1:], device=device) - 1,
        min_query_len=min(fed for _, fed in rows),
    )
    return PagedStep(
        qkv=torch.randn(starts[-1], (q_heads + 2 * kv_heads) * head_dim, device=device).to(dtype),
        kv_layer=kv.view(2, blocks, block_size, kv_heads, head_dim),
        q_norm=(torch.rand(head_dim, device=device) + 0.5).to(dtype) if norm else None,
        k_norm=(torch.rand(head_dim, device=device) + 0.5).to(dtype) if norm else None,
        cos_sin=torch.cat((angle.cos(), angle.sin()), dim=-1).float().to(device) if rope else None,
        batch=batch,
    )


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """In float64."""
    wide = x.double()
    return wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.double()


def attention(step: PagedStep, eps: float) -> tuple[Tensor, Tensor]:
    """`[T, Hq * D]` float64, and the pool as it must look afterwards; padding rows come out as zeros."""
    kv_heads, head_dim = step.kv_layer.shape[-2:]
    heads = step.qkv.double().unflatten(-1, (-1, head_dim))
    q, k, v = heads.split([heads.shape[1] - 2 * kv_heads, kv_heads, kv_heads], dim=1)
    if step.q_norm is not None and step.k_norm is not None:
        q, k = rms_norm(q, step.q_norm, eps), rms_norm(k, step.k_norm, eps)
    if step.cos_sin is not None:
        cos, sin = step.cos_sin[step.batch.positions.long()].double()[:, None].chunk(2, dim=-1)
        q, k = (torch.cat((a * cos - b * sin, b * cos + a * sin), -1) for a, b in (q.chunk(2, -1), k.chunk(2, -1)))
    pool = step.kv_layer.clone().flatten(1, 2)  # [2, slots, Hkv, D]
    real = step.batch.slots >= 0
    pool[0, step.batch.slots[real]] = k[real].to(pool.dtype)
    pool[1, step.batch.slots[real]] = v[real].to(pool.dtype)
    out = torch.zeros_like(q)
    starts, contexts = step.batch.query_starts.tolist(), step.batch.context_lens.tolist()
    block_size = step.kv_layer.shape[2]
    for r, context in enumerate(contexts):
        if context == 0:
            continue
        at = torch.arange(context, device=q.device)
        place = step.batch.block_tables[r].long()[at // block_size] * block_size + at % block_size
        keys, values = (x[place].double().repeat_interleave(q.shape[1] // kv_heads, 1) for x in pool)
        mine = slice(starts[r], starts[r + 1])
        scores = torch.einsum("qhd,khd->hqk", q[mine], keys) * head_dim**-0.5
        position = torch.arange(context - (starts[r + 1] - starts[r]), context, device=q.device)
        scores = scores.masked_fill(at > position[:, None], float("-inf"))
        out[mine] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)
    return out.flatten(1), pool.view_as(step.kv_layer)

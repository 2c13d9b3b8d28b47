"""Write a step's keys and values to their pages, after the per-head RMSNorm and the rotary embedding.

A page write is a scatter: token t goes to slot `block * block_size + offset`, wherever the block table put it. Slots
are int64: a pool of 2**31 elements (Qwen3-0.6B: 2 million tokens a layer) overflows 32-bit offsets and would wrap
into another request. Rotary positions: Su et al. 2021, in the "rotate half" pairing; norm on q and k heads: Qwen3.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from minivllm.kernels.launch import next_power_of_2


@triton.jit
def norm_and_rotate(heads, weight, inside, cos_sin, d, eps, D: tl.constexpr, NORM: tl.constexpr, ROPE: tl.constexpr):
    """RMSNorm and rotary embedding of some heads -> [N, BLOCK_D] float32; `heads`: [N, 1] pointers to their starts.

    Dimension i turns together with dimension i + D/2. Each lane loads its partner a second time (a cache hit) instead
    of exchanging it across the tile; so any even D works.
    """
    half: tl.constexpr = D // 2
    partner = tl.where(d < half, d + half, d - half)
    x = tl.load(heads + d, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(heads + partner, mask=inside, other=0.0).to(tl.float32)
    if NORM:
        scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=1) / D + eps)
        x = x * scale[:, None] * tl.load(weight + d, mask=inside, other=0.0).to(tl.float32)
        y = y * scale[:, None] * tl.load(weight + partner, mask=inside, other=0.0).to(tl.float32)
    if ROPE:
        cos = tl.load(cos_sin + d % half, mask=inside, other=0.0)
        sin = tl.load(cos_sin + half + d % half, mask=inside, other=0.0)
        x = x * cos + tl.where(d < half, -y, y) * sin
    return x


@triton.jit
def load_heads(numbers, d, D: tl.constexpr):
    """Heads of D numbers in a tile of `numbers: [N, BLOCK_D]` pointers, `d: [1, BLOCK_D]`; zeros behind them.

    A mask costs instructions in the innermost loop, also where it hides nothing: then there is none.
    """
    if d.shape[1] == D:
        x = tl.load(numbers)
    else:
        x = tl.load(numbers, mask=d < D, other=0.0)
    return x


@triton.jit
def as_stored(x, pool):
    """`x` in the dtype of `pool`; 8-bit floats saturate at their largest number instead of overflowing."""
    if pool.dtype.element_ty == tl.float8e4nv:
        x = tl.minimum(tl.maximum(x.to(tl.float32), -448.0), 448.0)
    return x.to(pool.dtype.element_ty)


@triton.jit
def store_kernel(
    qkv, turned, k_pool, v_pool, q_norm, k_norm, cos_sin, positions, slots, eps, qkv_stride,
    HQ: tl.constexpr, HKV: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_H: tl.constexpr,
    NORM: tl.constexpr, ROPE: tl.constexpr,
):  # fmt: skip
    """One program: one token, BLOCK_H of its heads (query heads first, then key heads, then value heads)."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)[:, None]  # [BLOCK_H, 1]
    d = tl.arange(0, BLOCK_D)[None, :]
    slot = tl.load(slots + token)
    is_q, is_k = head < HQ, (head >= HQ) & (head < HQ + HKV)
    is_v = (head >= HQ + HKV) & (head < HQ + 2 * HKV)
    base = qkv + token * qkv_stride + head * D
    weight = tl.where(is_q, q_norm, k_norm) if NORM else q_norm
    angles = cos_sin + tl.load(positions + token).to(tl.int64) * D if ROPE else cos_sin
    value = norm_and_rotate(base, weight, (is_q | is_k) & (d < D), angles, d, eps, D, NORM, ROPE)
    value = tl.where(is_v, tl.load(base + d, mask=is_v & (d < D), other=0.0).to(tl.float32), value)
    tl.store(turned + (token * (HQ + 2 * HKV) + head) * D + d, value, mask=(is_q | is_k | is_v) & (d < D))
    written = d < tl.where(slot >= 0, D, 0)
    stored = as_stored(value, k_pool)
    tl.store(k_pool + (slot * HKV + head - HQ) * D + d, stored, mask=is_k & written)
    tl.store(v_pool + (slot * HKV + head - HQ - HKV) * D + d, stored, mask=is_v & written)


def store(
    qkv: Tensor, kv_layer: Tensor, q_norm: Tensor | None, k_norm: Tensor | None, eps: float,
    cos_sin: Tensor | None, positions: Tensor, slots: Tensor,
) -> Tensor:  # fmt: skip
    """Norm and rotate q and k, write k and v to their `slots: [T] int64` (-1 = nowhere), return all as attended to.

    `qkv: [T, (Hq + 2 * Hkv) * D]`; `kv_layer: [2, num_blocks, block_size, Hkv, D]`, updated in place; `q_norm,
    k_norm: [D]`; `cos_sin: [max_position, D]` float32; `positions: [T]` int32 -> `[T, Hq + 2 * Hkv, D]`.
    """
    kv_heads, head_dim = kv_layer.shape[-2:]
    tokens, heads = len(qkv), qkv.shape[1] // head_dim
    turned = torch.empty(tokens, heads, head_dim, dtype=qkv.dtype, device=qkv.device)
    block_h = min(8 if tokens >= 64 else 2, next_power_of_2(heads))
    norm, rope = q_norm is not None and k_norm is not None, cos_sin is not None
    store_kernel[(tokens, triton.cdiv(heads, block_h))](
        qkv, turned, kv_layer[0], kv_layer[1], q_norm if norm else qkv, k_norm if norm else qkv,
        cos_sin if rope else qkv, positions, slots, eps, qkv.stride(0),
        HQ=heads - 2 * kv_heads, HKV=kv_heads, D=head_dim, BLOCK_D=next_power_of_2(head_dim), BLOCK_H=block_h,
        NORM=norm, ROPE=rope, num_warps=max(1, block_h // 2),
    )  # fmt: skip
    return turned

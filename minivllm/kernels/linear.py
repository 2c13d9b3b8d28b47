"""Matrix products with few rows: reading the weights is all the time there is, so read them early and in small programs.

A decode step multiplies M = batch rows with every weight once. Up to 16 rows a program holds all of its weights in registers,
loaded *before* it waits for the kernel that computes x (programmatic dependent launch: weights are constants). Where there are
too few outputs to occupy the GPU, K is cut into parts, and the last program of an output adds them up, in order. With more rows
a pipelined loop over K takes over, where it saves a kernel; otherwise cuBLAS is as good. SwiGLU (Shazeer 2020) reads the gate and
the up weights of an output side by side and gates it before it leaves the registers.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_wait

from minivllm.kernels.activation import silu_mul
from minivllm.kernels.launch import compute_dtype, next_power_of_2, programmatic_launch

FEW_ROWS, SOME_ROWS = 16, 64


@triton.jit
def silu(x):
    """x * sigmoid(x)."""
    return x / (1.0 + tl.exp(-x))


@triton.jit
def put(y, up, bias, out, m, n, rows, N, GATED: tl.constexpr, BIAS: tl.constexpr):
    """Gate or add the bias, and store a tile [M, BLOCK_N] of outputs; `m: [M, 1]`, `n: [1, BLOCK_N]`."""
    if GATED:
        y = silu(y) * up
    if BIAS:
        y += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)
    tl.store(out + m * N + n, y, mask=(m < rows) & (n < N))


@triton.jit
def one_row_kernel(
    x, weight, bias, out, rows, N, K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GATED: tl.constexpr, BIAS: tl.constexpr, DOT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_N outputs over the whole of K. `weight: [N, K]`, or [2 * N, K] when GATED (gate first, then up)."""
    n, k = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)[None, :]
    at = weight + n.to(tl.int64)[:, None] * K + k
    inside = (n < N)[:, None] & (k < K)
    w = tl.load(at, mask=inside, other=0.0)
    v = tl.load(at + N * K, mask=inside, other=0.0) if GATED else w
    if PDL:
        gdc_wait()
    a = tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
    y, up = tl.sum(a * w.to(tl.float32), axis=1), tl.sum(a * v.to(tl.float32), axis=1)
    put(y[None, :], up[None, :], bias, out, tl.zeros([1, 1], tl.int32), n[None, :], 1, N, GATED, BIAS)


@triton.jit
def few_rows_kernel(
    x, weight, bias, out, partial, counters, rows, N, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, PARTS: tl.constexpr, GATED: tl.constexpr, BIAS: tl.constexpr, DOT: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_N outputs of all rows over BLOCK_K of the inner dimension."""
    part = tl.program_id(1)
    m, n = tl.arange(0, BLOCK_M)[:, None], tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = part * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    at = weight + n.to(tl.int64)[:, None] * K + k
    inside = (n < N)[:, None] & (k < K)
    w = tl.load(at, mask=inside, other=0.0)
    v = tl.load(at + N * K, mask=inside, other=0.0) if GATED else w
    if PDL:
        gdc_wait()
    a = tl.load(x + m * K + k, mask=(m < rows) & (k < K), other=0.0).to(DOT)
    y = tl.dot(a, tl.trans(w.to(DOT)), input_precision="ieee")
    up = tl.dot(a, tl.trans(v.to(DOT)), input_precision="ieee") if GATED else y
    n = n[None, :]
    if PARTS == 1:
        put(y, up, bias, out, m, n, rows, N, GATED, BIAS)
    else:
        scratch = partial + m * N + n  # [2, PARTS, BLOCK_M, N]
        stride = BLOCK_M * N
        tl.store(scratch + part * stride, y, mask=n < N)
        if GATED:
            tl.store(scratch + (PARTS + part) * stride, up, mask=n < N)
        tl.debug_barrier()  # every thread's part is written before this program is counted
        if tl.atomic_add(counters + tl.program_id(0), 1, sem="acq_rel") == PARTS - 1:
            y, up = tl.zeros([BLOCK_M, BLOCK_N], tl.float32), tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
            for i in tl.static_range(PARTS):
                y += tl.load(scratch + i * stride, mask=n < N, other=0.0, cache_modifier=".cg")
                if GATED:
                    up += tl.load(scratch + (PARTS + i) * stride, mask=n < N, other=0.0, cache_modifier=".cg")
            put(y, up, bias, out, m, n, rows, N, GATED, BIAS)
            tl.store(counters + tl.program_id(0), 0)  # for the next launch


@triton.jit
def some_rows_kernel(
    x, weight, bias, out, rows, N, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GATED: tl.constexpr, BIAS: tl.constexpr, DOT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program: a [BLOCK_M, BLOCK_N] tile of the output; both operands stream through shared memory."""
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)[None, :]
    at = weight + n.to(tl.int64)[:, None] * K + k
    from_x = x + m * K + k
    y = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    up = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    if PDL:
        gdc_wait()
    for start in range(0, K, BLOCK_K):
        a = tl.load(from_x + start, mask=(m < rows) & (start + k < K), other=0.0).to(DOT)
        w = tl.load(at + start, mask=(n < N)[:, None] & (start + k < K), other=0.0).to(DOT)
        y = tl.dot(a, tl.trans(w), y, input_precision="ieee")
        if GATED:
            w = tl.load(at + N * K + start, mask=(n < N)[:, None] & (start + k < K), other=0.0).to(DOT)
            up = tl.dot(a, tl.trans(w), up, input_precision="ieee")
    put(y, up, bias, out, m, n[None, :], rows, N, GATED, BIAS)


@cache
def counters(device: torch.device) -> Tensor:
    """Arrivals of the parts of each output, zero between launches."""
    return torch.zeros(65536, dtype=torch.int32, device=device)


def skinny(x: Tensor, weight: Tensor, bias: Tensor | None, gated: bool) -> Tensor:
    """`x: [M, K]`, M <= 64, times `weight: [N, K]`, or gated with [2 * N, K] -> [M, N]."""
    rows, inner = x.shape
    width = len(weight) // (2 if gated else 1)
    out = torch.empty(rows, width, dtype=x.dtype, device=x.device)
    operands = (x.contiguous(), weight, out if bias is None else bias, out)
    pdl = programmatic_launch()
    options = {"GATED": gated, "BIAS": bias is not None, "DOT": compute_dtype(x.dtype), "PDL": pdl, "launch_pdl": pdl}
    if rows == 1:
        block_k = next_power_of_2(inner)
        block_n = max(1, 4096 // block_k)
        one_row_kernel[(triton.cdiv(width, block_n),)](
            *operands, rows, width, K=inner, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=4, **options
        )
    elif rows <= FEW_ROWS:
        block_n = 32
        block_k = min(512 if gated or width < 3072 else 1024, max(16, next_power_of_2(inner)))
        parts = triton.cdiv(inner, block_k)
        scratch = 2 * parts * FEW_ROWS * width if parts > 1 else 0
        partial = torch.empty(scratch, dtype=torch.float32, device=x.device)
        few_rows_kernel[(triton.cdiv(width, block_n), parts)](
            *operands, partial, counters(x.device), rows, width, K=inner, BLOCK_M=FEW_ROWS, BLOCK_N=block_n,
            BLOCK_K=block_k, PARTS=parts, num_warps=4, **options,
        )  # fmt: skip
    else:
        some_rows_kernel[(triton.cdiv(width, 32), triton.cdiv(rows, 64))](
            *operands, rows, width, K=inner, BLOCK_M=64, BLOCK_N=32, BLOCK_K=128, num_warps=4, num_stages=4, **options
        )
    return out


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x: [T, K]` times `weight: [N, K]` transposed, plus `bias: [N]` -> [T, N]; float32 sums."""
    return skinny(x, weight, bias, gated=False) if len(x) <= FEW_ROWS else F.linear(x, weight, bias)


def linear_silu_mul(x: Tensor, gate_up: Tensor) -> Tensor:
    """`silu(x @ gate.T) * (x @ up.T)` for `x: [T, H]`, `gate_up: [2 * I, H]`, gate first -> [T, I]."""
    return skinny(x, gate_up, None, gated=True) if len(x) <= SOME_ROWS else silu_mul(F.linear(x, gate_up))

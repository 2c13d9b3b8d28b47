"""Matrix products with few rows: reading the weights is all the time there is, so many small programs read at once.

A decode step multiplies M = batch rows with every weight once. With one row a program holds its weights in registers,
loaded *before* it waits for the kernel that computes x (programmatic dependent launch: weights are constants). With
up to 64 rows it streams weights and rows through the tensor cores. Where there are too few outputs to occupy the GPU,
K is cut into parts, and the last program of an output adds them up, in order. SwiGLU (Shazeer 2020) reads the gate
and the up weights of an output side by side and gates it before it leaves the registers. With more rows cuBLAS is as
good.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from minivllm.kernels.activation import silu, silu_mul
from minivllm.kernels.launch import compute_dtype, next_power_of_2, programmatic_launch

FEW_ROWS = 64
WIDE = 16384  # outputs beyond which cuBLAS is as good already from 17 rows on


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
    x, weight, bias, out, N, K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GATED: tl.constexpr,
    BIAS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_N outputs over the whole of K. `weight: [N, K]`; GATED: [2 * N, K], gate first, then up."""
    n, k = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)[None, :]
    at = weight + n.to(tl.int64)[:, None] * K + k
    inside = (n < N)[:, None] & (k < K)
    w = tl.load(at, mask=inside, other=0.0)
    v = tl.load(at + N * K, mask=inside, other=0.0) if GATED else w
    if PDL:
        gdc_wait()
    a = tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
    y, up = tl.sum(a * w.to(tl.float32), axis=1), tl.sum(a * v.to(tl.float32), axis=1)
    if PDL:
        gdc_launch_dependents()
    put(y[None, :], up[None, :], bias, out, tl.zeros([1, 1], tl.int32), n[None, :], 1, N, GATED, BIAS)


@triton.jit
def few_rows_kernel(
    x, weight, bias, out, partial, counters, rows, N, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, PARTS: tl.constexpr, GATED: tl.constexpr, BIAS: tl.constexpr, DOT: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_N outputs of all rows over one of the PARTS of the inner dimension."""
    part = tl.program_id(1)
    length: tl.constexpr = (K + PARTS * BLOCK_K - 1) // (PARTS * BLOCK_K) * BLOCK_K
    m, n = tl.arange(0, BLOCK_M)[:, None], tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = part * length + tl.arange(0, BLOCK_K)[None, :]
    from_x, from_weight = x + m * K + k, weight + n.to(tl.int64)[:, None] * K + k
    y = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    up = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    if PDL:
        gdc_wait()
    for start in range(0, length, BLOCK_K):
        a = tl.load(from_x + start, mask=(m < rows) & (start + k < K), other=0.0).to(DOT)
        inside = (n < N)[:, None] & (start + k < K)
        w = tl.load(from_weight + start, mask=inside, other=0.0).to(DOT)
        y = tl.dot(a, tl.trans(w), y, input_precision="tf32x3")
        if GATED:
            w = tl.load(from_weight + N * K + start, mask=inside, other=0.0).to(DOT)
            up = tl.dot(a, tl.trans(w), up, input_precision="tf32x3")
    if PDL:
        gdc_launch_dependents()
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
    options = {"GATED": gated, "BIAS": bias is not None, "PDL": pdl, "launch_pdl": pdl}
    if rows == 1:
        block_k = next_power_of_2(inner)
        block_n = max(1, (2048 if gated else 4096) // block_k)
        one_row_kernel[(triton.cdiv(width, block_n),)](
            *operands, width, K=inner, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=4, **options
        )
    else:
        blocks = triton.cdiv(width, 32)
        parts = max(1, min(128 // blocks, inner // 512))
        block_m = 16 if rows <= 16 else 64
        scratch = 2 * parts * block_m * width if parts > 1 else 0
        partial = torch.empty(scratch, dtype=torch.float32, device=x.device)
        few_rows_kernel[(blocks, parts)](
            *operands, partial, counters(x.device), rows, width, K=inner, BLOCK_M=block_m, BLOCK_N=32, BLOCK_K=128,
            PARTS=parts, DOT=compute_dtype(x.dtype), num_warps=4, num_stages=5 if x.element_size() == 2 else 3, **options,
        )  # fmt: skip
    return out


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x: [T, K]` times `weight: [N, K]` transposed, plus `bias: [N]` -> [T, N]; float32 sums."""
    few = len(x) <= 16 or (len(x) <= FEW_ROWS and len(weight) <= WIDE)
    return skinny(x, weight, bias, gated=False) if few else F.linear(x, weight, bias)


def linear_silu_mul(x: Tensor, gate_up: Tensor) -> Tensor:
    """`silu(x @ gate.T) * (x @ up.T)` for `x: [T, H]`, `gate_up: [2 * I, H]`, gate first -> [T, I]."""
    return skinny(x, gate_up, None, gated=True) if len(x) <= FEW_ROWS else silu_mul(F.linear(x, gate_up))

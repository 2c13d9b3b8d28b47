"""Matrix products with few rows: reading the weights is all the time there is, so read them early and in small programs.

A decode step multiplies M = batch rows with every weight once. Up to 16 rows one program takes BLOCK_N outputs over the whole
of K with all of its weights in registers, loaded *before* it waits for the kernel that computes x (programmatic dependent launch:
weights are constants). With more rows a pipelined loop over K takes over, and beyond that cuBLAS is as good. SwiGLU reads the
gate and the up rows of a pair of outputs side by side and gates them before they leave the registers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_wait

from minivllm.kernels.activation import silu_mul
from minivllm.kernels.launch import compute_dtype, next_power_of_2, programmatic_launch

FEW_ROWS, SOME_ROWS = 16, 128


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def product(x, w, ONE_ROW: tl.constexpr, SLICES: tl.constexpr):
    """`x: [M, K]` times `w: [N, K]` transposed -> `[M, N]` float32, K cut into SLICES that different warps sum up."""
    if ONE_ROW:
        return tl.sum(x.to(tl.float32) * w.to(tl.float32), axis=1)[None, :]
    length: tl.constexpr = x.shape[1] // SLICES
    left = tl.permute(tl.reshape(x, [x.shape[0], SLICES, length]), [1, 0, 2])
    right = tl.permute(tl.reshape(w, [w.shape[0], SLICES, length]), [1, 2, 0])
    return tl.sum(tl.dot(left, right, input_precision="ieee"), axis=0)


@triton.jit
def few_rows_kernel(
    x, weight, bias, out, rows, N, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SLICES: tl.constexpr, GATED: tl.constexpr, BIAS: tl.constexpr, DOT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_N outputs of all rows. `weight: [N, K]`, or [2 * N, K] when GATED (gate first, then up)."""
    m, n = tl.arange(0, BLOCK_M)[:, None], tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)[None, :]
    inside = (n < N)[:, None] & (k < K)
    at = weight + n.to(tl.int64)[:, None] * K + k
    w = tl.load(at, mask=inside, other=0.0).to(DOT)
    if GATED:
        up = tl.load(at + N * K, mask=inside, other=0.0).to(DOT)
    if PDL:
        gdc_wait()
    a = tl.load(x + m * K + k, mask=(m < rows) & (k < K), other=0.0).to(DOT)
    y = product(a, w, BLOCK_M == 1, SLICES)
    if GATED:
        y = silu(y) * product(a, up, BLOCK_M == 1, SLICES)
    if BIAS:
        y += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    tl.store(out + m * N + n[None, :], y, mask=(m < rows) & (n < N)[None, :])


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
    if GATED:
        y = silu(y) * up
    if BIAS:
        y += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    tl.store(out + m * N + n[None, :], y, mask=(m < rows) & (n < N)[None, :])


def few_rows(x: Tensor, weight: Tensor, bias: Tensor | None, gated: bool) -> Tensor:
    """`x: [M, K]`, M <= 16, times `weight: [N, K]` (or [2 * N, K] gated) -> [M, N]."""
    rows, inner = x.shape
    outputs = len(weight) // (2 if gated else 1)
    block_k = next_power_of_2(inner)
    block_m = 1 if rows == 1 else FEW_ROWS
    elements = 8192 if rows == 1 else 16384  # of the weights, per program
    block_n = max(1 if rows == 1 else 8, elements // block_k // (2 if gated else 1))
    warps = 8 if block_n * block_k > 16384 else 4
    return launch(few_rows_kernel, x, weight, bias, gated, (triton.cdiv(outputs, block_n),), warps, 1,
                  BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, SLICES=4)  # fmt: skip


def some_rows(x: Tensor, weight: Tensor, bias: Tensor | None, gated: bool) -> Tensor:
    """The same for more rows, in tiles of 64."""
    outputs = len(weight) // (2 if gated else 1)
    grid = (triton.cdiv(outputs, 32), triton.cdiv(len(x), 64))
    return launch(some_rows_kernel, x, weight, bias, gated, grid, 4, 4, BLOCK_M=64, BLOCK_N=32, BLOCK_K=128)


def launch(kernel, x, weight, bias, gated, grid, num_warps, num_stages, **tile) -> Tensor:  # noqa: ANN001
    """Run one of the two kernels."""
    rows, inner = x.shape
    outputs = len(weight) // (2 if gated else 1)
    out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
    pdl = programmatic_launch()
    kernel[grid](
        x, weight, x if bias is None else bias, out, rows, outputs, K=inner, GATED=gated, BIAS=bias is not None,
        DOT=compute_dtype(x.dtype), PDL=pdl, num_warps=num_warps, num_stages=num_stages, launch_pdl=pdl, **tile,
    )  # fmt: skip
    return out


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x: [T, K]` times `weight: [N, K]` transposed, plus `bias: [N]` -> [T, N]; float32 sums."""
    if len(x) <= FEW_ROWS and x.shape[1] <= 8192:
        return few_rows(x.contiguous(), weight, bias, gated=False)
    return F.linear(x, weight, bias)


def linear_silu_mul(x: Tensor, gate_up: Tensor) -> Tensor:
    """`silu(x @ gate.T) * (x @ up.T)` for `x: [T, H]`, `gate_up: [2 * I, H]`, gate first -> [T, I]."""
    if len(x) <= FEW_ROWS and x.shape[1] <= 8192:
        return few_rows(x.contiguous(), gate_up, None, gated=True)
    if len(x) <= SOME_ROWS:
        return some_rows(x.contiguous(), gate_up, None, gated=True)
    return silu_mul(F.linear(x, gate_up))

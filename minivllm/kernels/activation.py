"""SwiGLU: gate the up projection by silu(gate), in one pass over both halves.

Source: Shazeer 2020. Used where the matrix product before it is left to cuBLAS; for few rows `linear.py` gates in the
product's own epilogue instead.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_wait

from minivllm.kernels.launch import programmatic_launch


@triton.jit
def silu(x):
    """x * sigmoid(x)."""
    return x / (1.0 + tl.exp(-x))


@triton.jit
def silu_mul_kernel(gate_up, out, inner, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """One program: BLOCK columns of one token."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < inner
    if PDL:
        gdc_wait()
    gate = tl.load(gate_up + token * 2 * inner + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + token * 2 * inner + inner + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + token * inner + column, silu(gate) * up, mask=inside)


def silu_mul(gate_up: Tensor) -> Tensor:
    """`silu(gate) * up` for `gate_up: [T, 2 * I]`, gate first -> `[T, I]`; float32 inside."""
    tokens, inner = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(tokens, inner, dtype=gate_up.dtype, device=gate_up.device)
    block, pdl = 1024, programmatic_launch()
    silu_mul_kernel[(tokens, triton.cdiv(inner, block))](
        gate_up.contiguous(), out, inner, BLOCK=block, PDL=pdl, num_warps=4, launch_pdl=pdl
    )
    return out

"""RMSNorm: divide a token by the root of its mean square, with the residual addition in the same pass.

Source: Zhang & Sennrich 2019. One program holds one token in registers, so it is read once and written once; the sum
of squares is float32 (in fp16 a square overflows from 256 on).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from minivllm.kernels.launch import next_power_of_2, programmatic_launch


@triton.jit
def norm_kernel(
    x, residual, weight, normed, total, eps,
    H: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program: one token of H elements."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < H
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if PDL:
        gdc_wait()
    value = tl.load(x + token * H + column, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(residual + token * H + column, mask=inside, other=0.0).to(tl.float32)
        rounded = value.to(total.dtype.element_ty)  # what the next layer will read
        tl.store(total + token * H + column, rounded, mask=inside)
        value = rounded.to(tl.float32)
    if PDL:
        gdc_launch_dependents()
    root = tl.sqrt(tl.sum(value * value, axis=0) / H + eps)
    tl.store(normed + token * H + column, value / root * scale, mask=inside)


def add_rms_norm(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`(rms_norm(x + residual) * weight, x + residual)`; `x, residual: [..., H]`, `weight: [H]`; None is 0."""
    x = x.contiguous()
    normed = torch.empty_like(x)
    total = x if residual is None else torch.empty_like(x)
    hidden = x.shape[-1]
    pdl = programmatic_launch()
    norm_kernel[(x.numel() // hidden,)](
        x, x if residual is None else residual, weight, normed, total, eps,
        H=hidden, BLOCK=next_power_of_2(hidden), ADD=residual is not None, PDL=pdl,
        num_warps=4 if hidden <= 4096 else 8, launch_pdl=pdl,
    )  # fmt: skip
    return normed, total


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x / sqrt(mean(x**2) + eps) * weight` over the last dimension of `x: [..., H]`."""
    return add_rms_norm(x, None, weight, eps)[0]

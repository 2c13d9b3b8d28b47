"""The few operations a decoder needs, and the choice between their implementations.

`Ops` is the whole contract: six methods. To try your own kernel, subclass an implementation, override one
method, and pass the object wherever a name is accepted:

    class MyOps(ReferenceOps):
        def rms_norm(self, x, weight, eps): ...
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from minivllm.kernels.batch import RopeTable, SamplingTensors, StepBatch

NAMES = ("auto", "reference", "triton", "interpreter")


class Ops(Protocol):
    """What the decoder calls. Reductions accumulate in float32 whatever the dtype of the tensors."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """`x: [T, in]` times `weight: [out, in]` transposed, plus `bias: [out]` -> `[T, out]`."""

    def linear_silu_mul(self, x: Tensor, gate_up: Tensor) -> Tensor:
        """`silu(x @ gate.T) * (x @ up.T)`; `gate_up: [2 * I, H]`, gate first -> `[T, I]` (Shazeer 2020)."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """`x: [..., H]` scaled to unit root mean square, times `weight: [H]` (Zhang & Sennrich 2019)."""

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """`(rms_norm(x + residual), x + residual)`: the normed activations and the new residual stream."""

    def attention(
        self,
        qkv: Tensor,
        kv_layer: Tensor,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        eps: float,
        rope: RopeTable | None,
        batch: StepBatch,
    ) -> Tensor:
        """Write this step's keys and values to their pages, then attend through the block tables.

        `qkv: [T, (Hq + 2 * Hkv) * D]` -> `[T, Hq * D]`; `kv_layer: [2, num_blocks, block_size, Hkv, D]` is
        updated in place and gives Hkv and D. q and k get RMSNorm per head (`q_norm`, `k_norm: [D]`, Qwen3)
        and rotary positions where given. Each token sees every token of its row up to itself, cached prefix
        included; the scale is D ** -0.5.
        """

    def sample(self, logits: Tensor, params: SamplingTensors) -> Tensor:
        """`logits: [S, V]` -> token ids `[S]` int64."""


def get_ops(device: torch.device | str, name: str | Ops = "auto") -> Ops:
    """The operations to use on `device`.

    `name`: "reference" (plain torch, any device), "triton" (a CUDA GPU), "interpreter" (Triton kernels run by
    Triton's interpreter on the CPU: slow, for study), "auto" (triton on CUDA, reference elsewhere), or an
    `Ops` object, which is returned as it is. Raises ValueError for anything else and RuntimeError when Triton
    cannot be used here.
    """
    if not isinstance(name, str):
        return name
    if name not in NAMES:
        raise ValueError(f"kernels={name!r}: choose one of {', '.join(NAMES)}, or pass an Ops object")
    on_gpu = torch.device(device).type == "cuda"
    if name == "reference" or (name == "auto" and not on_gpu):
        from minivllm.kernels.reference import ReferenceOps

        return ReferenceOps()
    if name == "triton" and not on_gpu:
        raise RuntimeError(f"kernels='triton' needs a CUDA device, not {device}; use 'reference' or 'interpreter'")
    try:
        from minivllm.kernels import triton_ops
    except ImportError as error:
        raise RuntimeError(f"the Triton kernels cannot be imported ({error}); use kernels='reference'") from error
    return triton_ops.make_ops(interpret=name == "interpreter")

"""The decoder's operations as Triton kernels, for a GPU or for Triton's interpreter.

Which attention kernel runs depends on what a row feeds: one token, decode (which norms, rotates and stores it
itself); several, a store and then prefill. A step may mix both. Each kernel leaves the other's rows alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minivllm.kernels import launch, linear, norm
from minivllm.kernels.batch import RopeTable, SamplingTensors, StepBatch
from minivllm.kernels.paged_decode import DecodePlan, paged_decode, plan_decode
from minivllm.kernels.paged_prefill import PrefillPlan, paged_prefill, plan_prefill
from minivllm.kernels.sample import sample
from minivllm.kernels.store import store


class TritonOps:
    """`Ops` in Triton. Needs no state of its own but the plan of the step in progress, which its layers share."""

    def __init__(self) -> None:
        self._batch: StepBatch | None = None
        self._first_layer = 0
        self._decode: DecodePlan | None = None
        self._prefill: PrefillPlan | None = None

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """See `linear.linear`."""
        return linear.linear(x, weight, bias)

    def linear_silu_mul(self, x: Tensor, gate_up: Tensor) -> Tensor:
        """See `linear.linear_silu_mul`."""
        return linear.linear_silu_mul(x, gate_up)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See `norm.rms_norm`."""
        return norm.rms_norm(x, weight, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """See `norm.add_rms_norm`."""
        return norm.add_rms_norm(x, residual, weight, eps)

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
        """Prefill for the rows that feed several tokens, decode for those that feed one."""
        kv_heads, head_dim = kv_layer.shape[-2:]
        q_heads = qkv.shape[1] // head_dim - 2 * kv_heads
        planned_now = self._plan(batch, kv_layer, len(qkv), q_heads)
        cos_sin = None if rope is None else rope.cos_sin
        out = torch.empty(len(qkv), q_heads * head_dim, dtype=qkv.dtype, device=qkv.device)
        if self._prefill is not None:
            turned = store(qkv, kv_layer, q_norm, k_norm, eps, cos_sin, batch.positions, batch.slots)
            paged_prefill(turned, kv_layer, batch, self._prefill, out)
        if self._decode is not None:
            paged_decode(qkv, kv_layer, q_norm, k_norm, eps, cos_sin, batch, self._decode, out, planned_now)
        return out

    def _plan(self, batch: StepBatch, kv_layer: Tensor, tokens: int, q_heads: int) -> bool:
        """Plan a step when its first layer asks: a new batch, or the same batch back at the layer it began with."""
        layer = kv_layer.data_ptr()
        if batch is self._batch and layer != self._first_layer:
            return False
        self._batch, self._first_layer = batch, layer
        kv_heads, head_dim = kv_layer.shape[-2:]
        size = kv_layer.element_size()
        self._prefill = plan_prefill(batch, tokens, q_heads, kv_layer) if batch.max_query_len > 1 else None
        self._decode = plan_decode(batch, q_heads, kv_heads, head_dim, size) if batch.min_query_len <= 1 else None
        return True

    def sample(self, logits: Tensor, params: SamplingTensors) -> Tensor:
        """See `sample.sample`."""
        return sample(logits, params)


def make_ops(interpret: bool) -> TritonOps:
    """The kernels on the GPU, or in Triton's interpreter; RuntimeError when Triton was set up for the other one."""
    if interpret and not launch.INTERPRETED:
        raise RuntimeError("kernels='interpreter' needs TRITON_INTERPRET=1 before Triton is imported")
    return TritonOps()

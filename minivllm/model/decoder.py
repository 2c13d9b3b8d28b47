"""One decoder for every model: embed, then attention and MLP per layer, then logits.

The decoder owns no cache and no requests. It is handed tokens, a `StepBatch` that says where they stand, and
the pool that holds keys and values, so the same code serves prefill, chunks, decodes and any mixture.
"""

from __future__ import annotations

from torch import Tensor

from minivllm.kernels.batch import StepBatch
from minivllm.kernels.ops import Ops
from minivllm.model.fused import Weights
from minivllm.model.rope import rope_table
from minivllm.model.spec import ModelSpec


class Decoder:
    """A model ready to run: its shape, its weights, and the operations to compute with."""

    def __init__(self, spec: ModelSpec, weights: Weights, ops: Ops) -> None:
        self.spec, self.weights, self.ops = spec, weights, ops
        self.rope = rope_table(spec.rope, spec.head_dim, spec.max_position, weights.embed.device)

    def forward(self, tokens: Tensor, batch: StepBatch, kv: Tensor) -> Tensor:
        """Feed `tokens: [T]` int64, fill their slots of `kv`, and return logits `[S, vocab]` in the weights' dtype.

        `kv: [layers, 2, num_blocks, block_size, kv_heads, head_dim]`, in the weights' dtype or an 8-bit one, is updated in
        place. Only the S tokens named by `batch.logit_rows` get logits (None: all T). Nothing here waits for the device.
        """
        return self.head(self.hidden(tokens, batch, kv))

    def head(self, x: Tensor) -> Tensor:
        """Logits `[S, vocab]` of `x: [S, hidden]`, which is what `hidden` returns."""
        return self.ops.linear(x, self.weights.lm_head)

    def hidden(self, tokens: Tensor, batch: StepBatch, kv: Tensor) -> Tensor:
        """As `forward`, but without the output layer: `[S, hidden]`, normed."""
        ops, eps, weights = self.ops, self.spec.rms_norm_eps, self.weights
        residual = weights.embed[tokens]  # [T, hidden]
        x = ops.rms_norm(residual, weights.layers[0].input_norm, eps)
        for index, layer in enumerate(weights.layers):
            rotates = self.spec.rope_layers is None or self.spec.rope_layers[index]
            rope = self.rope if rotates else None
            qkv = ops.linear(x, layer.qkv, layer.qkv_bias)  # [T, (q_heads + 2 * kv_heads) * head_dim]
            mixed = ops.attention(qkv, kv[index], layer.q_norm, layer.k_norm, eps, rope, batch)
            x, residual = ops.add_rms_norm(ops.linear(mixed, layer.o), residual, layer.post_norm, eps)
            x = ops.linear(ops.linear_silu_mul(x, layer.gate_up), layer.down)  # [T, hidden]
            if index + 1 < len(weights.layers):
                x, residual = ops.add_rms_norm(x, residual, weights.layers[index + 1].input_norm, eps)
        if batch.logit_rows is not None:  # the only rows still of interest: [S, hidden]
            x, residual = x[batch.logit_rows], residual[batch.logit_rows]
        x, _ = ops.add_rms_norm(x, residual, weights.final_norm, eps)
        return x

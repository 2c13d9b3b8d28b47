"""The tensors of a model, with the matrices that share an input joined into one.

q, k and v are three matrices over the same activations, and so are gate and up: one matrix product instead of
three or two. Checkpoints of every format are read through one function, `get(name) -> tensor`, in Hugging
Face's names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from minivllm.model.spec import ModelSpec


@dataclass(frozen=True)
class LayerWeights:
    """One layer; H = hidden, D = head_dim, I = intermediate. Matrices are `[out, in]`."""

    input_norm: Tensor  # [H]
    qkv: Tensor  # [(Hq + 2 * Hkv) * D, H]: all q heads, then k, then v
    qkv_bias: Tensor | None  # [(Hq + 2 * Hkv) * D] (Qwen2)
    q_norm: Tensor | None  # [D] (Qwen3)
    k_norm: Tensor | None  # [D] (Qwen3)
    o: Tensor  # [H, Hq * D]
    post_norm: Tensor  # [H]
    gate_up: Tensor  # [2 * I, H]: gate, then up
    down: Tensor  # [H, I]


@dataclass(frozen=True)
class Weights:
    """All of a model. A tied `lm_head` is the embedding itself, not a copy."""

    embed: Tensor  # [vocab, H]
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor  # [H]
    lm_head: Tensor  # [vocab, H]

    @property
    def nbytes(self) -> int:
        """Bytes of memory that they take."""
        layers = (tensor for layer in self.layers for tensor in vars(layer).values() if tensor is not None)
        tensors = (self.embed, self.final_norm, self.lm_head, *layers)
        return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())


def build_weights(
    spec: ModelSpec, get: Callable[[str], Tensor], dtype: torch.dtype, device: torch.device | str
) -> Weights:
    """Assemble a model from `get`, which returns the tensor of a Hugging Face name or raises ValueError.

    Raises ValueError for a tensor whose shape is not what the spec demands.
    """

    def take(shape: tuple[int, ...], *names: str, rows: tuple[int, ...] = ()) -> Tensor:
        """One tensor, or several with `rows` rows each, written once into one of `shape`."""
        tensors = [get(name) for name in names]
        for name, tensor, count in zip(names, tensors, rows or shape[:1], strict=True):
            wanted = (count, *shape[1:])
            if tuple(tensor.shape) != wanted:
                raise ValueError(f"tensor {name} has shape {list(tensor.shape)}, the config demands {list(wanted)}")
        joined = torch.empty(shape, dtype=dtype, device=device)
        for tensor, target in zip(tensors, joined.split(rows or shape[0]), strict=True):
            target.copy_(tensor)
        return joined

    def layer(index: int) -> LayerWeights:
        block = f"model.layers.{index}"
        attn, mlp = f"{block}.self_attn", f"{block}.mlp"
        qkv = (f"{attn}.q_proj", f"{attn}.k_proj", f"{attn}.v_proj")
        biased, normed = spec.qkv_bias, spec.qk_norm
        return LayerWeights(
            input_norm=take((hidden,), f"{block}.input_layernorm.weight"),
            qkv=take((sum(sizes), hidden), *(f"{part}.weight" for part in qkv), rows=sizes),
            qkv_bias=take((sum(sizes),), *(f"{part}.bias" for part in qkv), rows=sizes) if biased else None,
            q_norm=take((spec.head_dim,), f"{attn}.q_norm.weight") if normed else None,
            k_norm=take((spec.head_dim,), f"{attn}.k_norm.weight") if normed else None,
            o=take((hidden, sizes[0]), f"{attn}.o_proj.weight"),
            post_norm=take((hidden,), f"{block}.post_attention_layernorm.weight"),
            gate_up=take((2 * inner, hidden), f"{mlp}.gate_proj.weight", f"{mlp}.up_proj.weight", rows=(inner, inner)),
            down=take((hidden, inner), f"{mlp}.down_proj.weight"),
        )

    hidden, inner, vocab = spec.hidden_size, spec.intermediate_size, spec.vocab_size
    sizes = tuple(heads * spec.head_dim for heads in (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads))
    embed = take((vocab, hidden), "model.embed_tokens.weight")
    return Weights(
        embed=embed,
        layers=tuple(layer(index) for index in range(spec.num_layers)),
        final_norm=take((hidden,), "model.norm.weight"),
        lm_head=embed if spec.tie_embeddings else take((vocab, hidden), "lm_head.weight"),
    )


def random_weights(
    spec: ModelSpec, seed: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Weights:
    """A model of this shape that knows nothing: numbers drawn from `seed`, matrices small, norms near one."""
    generator = torch.Generator(device).manual_seed(seed)

    def draw(*shape: int, mean: float = 0.0) -> Tensor:
        noise = torch.randn(shape, generator=generator, dtype=torch.float32, device=device)
        return (mean + 0.02 * noise).to(dtype)

    hidden, inner, width = spec.hidden_size, spec.intermediate_size, spec.num_heads * spec.head_dim
    qkv = width + 2 * spec.num_kv_heads * spec.head_dim
    embed = draw(spec.vocab_size, hidden)
    layers = tuple(
        LayerWeights(
            input_norm=draw(hidden, mean=1.0),
            qkv=draw(qkv, hidden),
            qkv_bias=draw(qkv) if spec.qkv_bias else None,
            q_norm=draw(spec.head_dim, mean=1.0) if spec.qk_norm else None,
            k_norm=draw(spec.head_dim, mean=1.0) if spec.qk_norm else None,
            o=draw(hidden, width),
            post_norm=draw(hidden, mean=1.0),
            gate_up=draw(2 * inner, hidden),
            down=draw(hidden, inner),
        )
        for _ in range(spec.num_layers)
    )
    return Weights(
        embed=embed,
        layers=layers,
        final_norm=draw(hidden, mean=1.0),
        lm_head=embed if spec.tie_embeddings else draw(spec.vocab_size, hidden),
    )

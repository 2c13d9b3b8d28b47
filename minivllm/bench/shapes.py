"""Models of a known shape with random weights, so that speed can be measured where nothing can be downloaded."""

import dataclasses
from typing import Any

import torch

from minivllm.config import kv_bytes_per_token
from minivllm.model.spec import ModelSpec
from minivllm.model.weights import LoadedModel, random_weights

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {
        "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
        "max_position_embeddings": 40960, "tie_word_embeddings": True, "rope_theta": 1_000_000.0, "rms_norm_eps": 1e-6,
        "torch_dtype": "bfloat16",
    },
}  # fmt: skip


def dummy_model(name: str, device: str, dtype: torch.dtype = torch.bfloat16, layers: int | None = None) -> LoadedModel:
    """A `LoadedModel` of a named shape, weights drawn by seed 0, no tokenizer, no end token.

    Raises `ValueError` naming the shapes there are.
    """
    if name not in SHAPES:
        raise ValueError(f"no shape {name!r}; there are {', '.join(SHAPES)}")
    spec = dataclasses.replace(ModelSpec.from_hf(SHAPES[name]), eos_token_ids=())
    if layers is not None:
        spec = dataclasses.replace(spec, num_layers=layers)
    return LoadedModel(spec, random_weights(spec, 0, dtype, device), None, {}, f"{name} (random weights)", "asked for")


def bytes_of_weights(spec: ModelSpec, dtype_bytes: int = 2) -> int:
    """Bytes of weights one decode step reads: every layer and the output layer, not the embedding (one row a token)."""
    q, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    layer = spec.hidden_size * (q + 2 * kv) + q * spec.hidden_size + 3 * spec.hidden_size * spec.intermediate_size
    return dtype_bytes * (spec.num_layers * layer + spec.vocab_size * spec.hidden_size)


def kv_bytes(spec: ModelSpec, dtype_bytes: int = 2) -> int:
    """Bytes of K and V per token in context."""
    return kv_bytes_per_token(spec.num_layers, spec.num_kv_heads, spec.head_dim, dtype_bytes)


def flops_per_token(spec: ModelSpec) -> int:
    """Multiply-adds times two of the layers' matrices, per prompt token."""
    return 2 * (bytes_of_weights(spec, 1) - spec.vocab_size * spec.hidden_size)

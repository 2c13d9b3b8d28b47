"""A model small enough to be sick in milliseconds: two layers, random weights, nothing to say."""

from functools import cache
from typing import TYPE_CHECKING, Any

from minivllm.config import EngineConfig
from minivllm.engine import Engine

if TYPE_CHECKING:
    from minivllm.model import LoadedModel


@cache
def tiny_model(seed: int = 0) -> "LoadedModel":
    """Two layers of four heads over two KV heads, 512 tokens of vocabulary, context up to 4,096."""
    from minivllm.model import LoadedModel, ModelSpec, random_weights

    config = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 512,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
    }
    spec = ModelSpec.from_hf(config)
    return LoadedModel(spec, random_weights(spec, seed), None, {}, "tiny", "random weights")


def engine_with_model(model: Any, config: EngineConfig, kernels: Any = "reference") -> Engine:
    """A fresh engine on the CPU over `model`, or over the tiny one."""
    return Engine(config.replace(device="cpu"), model=model or tiny_model(), kernels=kernels)

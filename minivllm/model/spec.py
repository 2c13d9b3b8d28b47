"""What distinguishes one decoder-only model from another: a page of numbers and a few switches.

Llama, SmolLM2, SmolLM3, Mistral, Qwen2, Qwen2.5 and Qwen3 are the same network. They differ in sizes, in
whether q, k and v have a bias (Qwen2), whether q and k are normalised (Qwen3), which layers rotate (SmolLM3)
and how far the rotation reaches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minivllm.model.rope import RopeSpec


@dataclass(frozen=True)
class Family:
    """What a config file leaves unsaid."""

    qkv_bias: bool = False
    qk_norm: bool = False
    tie_embeddings: bool = False
    theta: float = 10_000.0
    sliding_window: bool = False  # a window in the config counts unless `use_sliding_window` says otherwise
    head_dim: int | None = None  # None = hidden_size / num_heads


FAMILIES = {
    "LlamaForCausalLM": Family(),
    "MistralForCausalLM": Family(sliding_window=True),
    "Qwen2ForCausalLM": Family(qkv_bias=True),
    "Qwen3ForCausalLM": Family(qk_norm=True, head_dim=128),
    "SmolLM3ForCausalLM": Family(tie_embeddings=True, theta=2_000_000.0),
}
MODEL_TYPES = {name.removesuffix("ForCausalLM").lower(): name for name in FAMILIES}


@dataclass(frozen=True)
class ModelSpec:
    """The shape of a model. `max_position` is the longest context it may be given."""

    architecture: str
    vocab_size: int  # rows of the embedding, which may exceed the tokens in use
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float
    rope: RopeSpec
    max_position: int
    tie_embeddings: bool = False  # the output layer is the embedding
    qkv_bias: bool = False
    qk_norm: bool = False
    rope_layers: tuple[bool, ...] | None = None  # which layers rotate q and k; None = all
    dtype: str = "float32"  # of the checkpoint
    eos_token_ids: tuple[int, ...] = ()

    @classmethod
    def from_hf(cls, config: Any) -> ModelSpec:
        """From a Hugging Face config, as an object or as the dict in `config.json`.

        Raises ValueError, naming what was given and what is supported, for anything we would compute wrongly:
        another architecture, an unknown rope_type, another activation, biases we do not have, quantised
        weights.
        """
        given: Mapping[str, Any] = config if isinstance(config, Mapping) else config.to_dict()
        architecture = _architecture(given)
        family = FAMILIES[architecture]
        _refuse_what_we_lack(given)
        heads = _count(given, "num_attention_heads")
        hidden = _count(given, "hidden_size")
        layers = _count(given, "num_hidden_layers")
        rope = RopeSpec.from_hf(given, family.theta)
        tied = given.get("tie_word_embeddings")
        spec = cls(
            architecture=architecture,
            vocab_size=_count(given, "vocab_size"),
            hidden_size=hidden,
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=_count(given, "num_key_value_heads", heads),
            head_dim=_count(given, "head_dim", family.head_dim or hidden // heads),
            intermediate_size=_count(given, "intermediate_size"),
            rms_norm_eps=float(given.get("rms_norm_eps") or 1e-6),
            rope=rope,
            max_position=_max_position(given, family, rope),
            tie_embeddings=family.tie_embeddings if tied is None else bool(tied),
            qkv_bias=family.qkv_bias,
            qk_norm=family.qk_norm,
            rope_layers=_rope_layers(given, layers) if architecture == "SmolLM3ForCausalLM" else None,
            dtype=str(given.get("dtype") or given.get("torch_dtype") or "float32").removeprefix("torch."),
            eos_token_ids=token_ids(given.get("eos_token_id")),
        )
        if spec.num_heads % spec.num_kv_heads or spec.head_dim % 2:
            raise ValueError(
                f"{spec.num_heads} query heads must be a multiple of {spec.num_kv_heads} key heads, "
                f"and head_dim {spec.head_dim} even"
            )
        return spec


def token_ids(given: int | Sequence[int] | None) -> tuple[int, ...]:
    """A config's end tokens, which may be none, one or several."""
    ids = () if given is None else tuple(given) if isinstance(given, list | tuple) else (given,)
    if not all(isinstance(token, int) for token in ids):
        raise ValueError(f"eos_token_id is {given!r}, expected a token id or a list of them")
    return ids


def _architecture(config: Mapping[str, Any]) -> str:
    model_type = str(config.get("model_type"))
    named = config.get("architectures") or [MODEL_TYPES.get(model_type, model_type)]
    names = [str(name) for name in (named if isinstance(named, list | tuple) else [named])]
    for name in names:
        if name in FAMILIES:
            return str(name)
    raise ValueError(f"architecture {', '.join(names)} is not supported; supported: {', '.join(FAMILIES)}")


def _refuse_what_we_lack(config: Mapping[str, Any]) -> None:
    if config.get("hidden_act", "silu") not in ("silu", "swish"):
        raise ValueError(f"hidden_act {config['hidden_act']!r} is not supported; supported: silu")
    for bias in ("attention_bias", "mlp_bias"):
        if config.get(bias):
            raise ValueError(f"{bias}=true is not supported: only Qwen2's bias on q, k and v is")
    if quantization := config.get("quantization_config"):
        method = dict(quantization).get("quant_method", "unknown")
        raise ValueError(
            f"weights quantised with {method!r} are not supported; use the unquantised model, or a GGUF file"
        )


def _max_position(config: Mapping[str, Any], family: Family, rope: RopeSpec) -> int:
    """Yarn's reach, but never past a sliding window: within it, windowed and full attention are the same."""
    limit = _count(config, "max_position_embeddings")
    if rope.rope_type == "yarn":
        limit = max(limit, int(rope.original_max_position * rope.factor))
    layer_types = config.get("layer_types")
    slides = config.get("use_sliding_window", family.sliding_window)
    if layer_types is not None:
        slides = "sliding_attention" in layer_types
    window = config.get("sliding_window")
    return min(limit, int(window)) if slides and window else limit


def _rope_layers(config: Mapping[str, Any], layers: int) -> tuple[bool, ...]:
    """SmolLM3 leaves every fourth layer without positions (NoPE, Yang et al. 2025)."""
    flags = config.get("no_rope_layers")  # despite its name, 1 means "rotates"
    if flags is None:
        interval = int(config.get("no_rope_layer_interval") or 4)
        flags = [(layer + 1) % interval != 0 for layer in range(layers)]
    return tuple(bool(flag) for flag in flags[:layers])


def _count(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = default if config.get(key) is None else config[key]
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"the model's config has {key}={value!r}, expected a positive integer")
    return value

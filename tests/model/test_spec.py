"""What a config becomes, and what is refused; rotations against transformers' own."""

import json

import pytest
import torch
from transformers import (
    AutoConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from minivllm.model import ModelSpec
from minivllm.model.rope import RopeSpec, inverse_frequencies, rope_table

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768}
SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def config(**changes):
    return LlamaConfig(hidden_size=256, num_attention_heads=4, max_position_embeddings=131072, **changes)


@pytest.mark.parametrize(
    "rope",
    [
        LLAMA3,
        YARN,
        YARN | {"attention_factor": 1.0},
        YARN | {"beta_fast": 16.0, "beta_slow": 2.0, "truncate": False},
        YARN | {"mscale": 1.0, "mscale_all_dim": 0.8},
        {"rope_type": "linear", "rope_theta": 1e4, "factor": 8.0},
    ],
)
def test_inverse_frequencies_and_magnitude_are_those_of_transformers(rope):
    theirs = config(rope_parameters=dict(rope))
    wanted, magnitude = ROPE_INIT_FUNCTIONS[rope["rope_type"]](theirs, None)
    spec = ModelSpec.from_hf(theirs)
    torch.testing.assert_close(inverse_frequencies(spec.rope, 64), wanted, rtol=1e-6, atol=0)
    assert spec.rope.attention_factor == pytest.approx(magnitude, rel=1e-12)


def test_llama3_slows_only_the_slow_pairs():
    plain = inverse_frequencies(RopeSpec(500000.0), 64)
    ratio = plain / inverse_frequencies(RopeSpec.from_hf(config(rope_parameters=LLAMA3).to_dict(), 1e4), 64)
    assert torch.allclose(ratio[:15], torch.ones(15))
    assert ratio[15:19].tolist() == pytest.approx([1.651, 3.292, 9.667, 32.0], rel=1e-3)


def test_divisors_from_a_gguf_file_are_another_way_to_write_llama3():
    wanted = inverse_frequencies(RopeSpec.from_hf(config(rope_parameters=LLAMA3).to_dict(), 1e4), 64)
    divisors = (inverse_frequencies(RopeSpec(500000.0), 64) / wanted).tolist()
    ours = RopeSpec.from_hf({"rope_theta": 500000.0, "rope_parameters": {"freq_factors": divisors}}, 1e4)
    torch.testing.assert_close(inverse_frequencies(ours, 64), wanted)


def test_scaling_shows_only_at_long_distances():
    plain = rope_table(RopeSpec(500000.0), 64, 8193).cos_sin
    scaled = rope_table(RopeSpec.from_hf(config(rope_parameters=LLAMA3).to_dict(), 1e4), 64, 8193).cos_sin
    likeness = torch.cosine_similarity(plain, scaled)
    assert likeness[[1, 100, 1000, 8192]].tolist() == pytest.approx([1.0, 0.9995, 0.955, 0.764], abs=1e-3)


def test_yarn_magnitude_is_applied_once_and_yields_to_the_config():
    default = RopeSpec.from_hf({"rope_parameters": YARN}, 1e4)
    given = RopeSpec.from_hf({"rope_parameters": YARN | {"attention_factor": 1.0}}, 1e4)
    assert default.attention_factor == pytest.approx(1.1386, abs=1e-4) and given.attention_factor == 1.0
    assert rope_table(default, 64, 1).cos_sin[0, 0] == pytest.approx(1.1386, abs=1e-4)


def test_theta_is_found_in_every_place_a_config_keeps_it():
    """transformers 5 moves it into rope_parameters and leaves `config.rope_theta` empty."""
    new = AutoConfig.for_model(**SMOLLM2)
    assert getattr(new, "rope_theta", None) is None
    for source in (new, new.to_dict(), SMOLLM2, json.loads(new.to_json_string())):
        spec = ModelSpec.from_hf(source)
        assert spec.rope.theta == 100000.0
        assert inverse_frequencies(spec.rope, 64)[1] == pytest.approx(0.6978, abs=1e-4)
    old = {"rope_theta": 7.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert RopeSpec.from_hf(old, 1e4) == RopeSpec(7.0, "linear", factor=2.0, original_max_position=0)


def test_smollm2_as_published():
    spec = ModelSpec.from_hf(SMOLLM2)
    assert (spec.num_layers, spec.num_heads, spec.num_kv_heads, spec.head_dim) == (30, 9, 3, 64)
    assert spec.tie_embeddings and not spec.qkv_bias and not spec.qk_norm
    assert spec.dtype == "bfloat16" and spec.eos_token_ids == (2,) and spec.max_position == 8192


def test_what_the_families_differ_in():
    qwen2, qwen3 = ModelSpec.from_hf(Qwen2Config()), ModelSpec.from_hf(Qwen3Config())
    assert qwen2.qkv_bias and not qwen2.qk_norm
    assert qwen3.qk_norm and not qwen3.qkv_bias and qwen3.head_dim == 128
    smollm3 = ModelSpec.from_hf(SmolLM3Config())
    assert smollm3.rope_layers == (True, True, True, False) * 9
    assert smollm3.rope.theta == 2_000_000 and smollm3.tie_embeddings
    assert ModelSpec.from_hf(MistralConfig(eos_token_id=[2, 5])).eos_token_ids == (2, 5)


def test_yarn_lengthens_the_context_and_a_sliding_window_shortens_it():
    yarn = Qwen2Config(max_position_embeddings=32768, rope_parameters=dict(YARN))
    assert ModelSpec.from_hf(yarn).max_position == 131072
    assert ModelSpec.from_hf(MistralConfig(sliding_window=4096)).max_position == 4096
    assert ModelSpec.from_hf(MistralConfig(sliding_window=None)).max_position == 131072
    sliding = Qwen2Config(use_sliding_window=True, sliding_window=1000, max_window_layers=2)
    assert ModelSpec.from_hf(sliding).max_position == 1000
    assert ModelSpec.from_hf(Qwen2Config(sliding_window=1000)).max_position == 32768


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM.*supported: LlamaForCausalLM, Mistral"),
        ({"architectures": None, "model_type": "gpt2"}, "gpt2 is not supported; supported: Llama"),
        ({"rope_scaling": {"rope_type": "spiral"}}, "'spiral'.*default, linear, llama3, yarn"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "needs low_freq_factor, high_freq_factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"quantization_config": {"quant_method": "awq"}}, "'awq'"),
        ({"num_key_value_heads": 2}, "9 query heads must be a multiple of 2"),
        ({"head_dim": 63}, "head_dim 63 even"),
        ({"hidden_size": None}, "hidden_size=None"),
        ({"num_hidden_layers": [30]}, "num_hidden_layers"),
    ],
)
def test_what_we_would_compute_wrongly_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ModelSpec.from_hf(SMOLLM2 | changes)

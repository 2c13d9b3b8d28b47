"""The packaged SmolLM2-135M-Instruct, whole: its text is that of transformers running the same weights."""

import functools

import gguf
import numpy as np
import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

from minivllm.bench.peer import to_transformers
from minivllm.model import load, locate

PROMPTS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "List three prime numbers greater than 10.",
    "Translate 'good morning' into Spanish.",
    "def fibonacci(n):",
    "Explain photosynthesis to a child in two sentences, please, and name the gas that plants breathe in.",
    "Why is the sky blue?\n\n1.",
    "Tell me a story about a dragon who is afraid of the dark.",
]


@functools.cache
def smollm2():
    return load("packaged")


@functools.cache
def reference():
    """transformers' Llama holding our dequantised tensors, which are compared with the gguf package's below."""
    return to_transformers(smollm2())


def test_the_file_is_dequantised_bit_for_bit_and_q_and_k_put_in_order():
    model = smollm2()
    tensors = {t.name: t for t in gguf.GGUFReader(locate.locate("packaged").path).tensors}

    def original(name):
        tensor = tensors[name]
        return torch.from_numpy(np.array(gguf.dequantize(tensor.data, tensor.tensor_type)))

    layer = model.weights.layers[7]
    q = original("blk.7.attn_q.weight").reshape(9, 32, 2, 576).swapaxes(1, 2).reshape(576, 576)
    k = original("blk.7.attn_k.weight").reshape(3, 32, 2, 576).swapaxes(1, 2).reshape(192, 576)
    assert torch.equal(layer.qkv, torch.cat((q, k, original("blk.7.attn_v.weight"))))
    assert torch.equal(layer.down, original("blk.7.ffn_down.weight"))
    assert torch.equal(model.weights.embed, original("token_embd.weight"))
    assert model.weights.lm_head is model.weights.embed


def test_greedy_text_of_eight_prompts_equals_transformers_token_for_token(paged):
    """Ours in one batch of eight through pages; theirs in one padded batch with its own cache."""
    tokenizer, count = smollm2().tokenizer, 32
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=True
        )["input_ids"]
        for text in PROMPTS
    ]
    pool = paged(smollm2(), num_blocks=64)
    ours = [[int(token)] for token in pool.feed([(str(i), p) for i, p in enumerate(prompts)]).argmax(-1)]
    for _ in range(count - 1):
        step = pool.feed([(str(i), tokens[-1:]) for i, tokens in enumerate(ours)]).argmax(-1)
        for tokens, token in zip(ours, step.tolist(), strict=True):
            tokens.append(token)
    longest = max(map(len, prompts))
    padded = torch.tensor([[2] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    with torch.inference_mode():
        theirs = reference().generate(
            padded, attention_mask=mask, max_new_tokens=count, do_sample=False, eos_token_id=-1, pad_token_id=2
        )[:, longest:]
    assert ours == theirs.tolist()
    assert "Paris" in tokenizer.decode(ours[0])


def test_text_is_cut_before_merging_as_llama_cpp_cuts_it():
    """Digits one by one, then GPT-2's expression: two newlines before a number are one token."""
    tokenizer = smollm2().tokenizer
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("\n\n1.")) == ["ĊĊ", "1", "."]
    named = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    texts = ["see  12 x², ½ or ٣٤", "it's  \t\n tabs\r\n", "日本語 🙂🙃 naïve", " a  b   c\n\n\n", *PROMPTS]
    for text in texts:
        ours = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)
        assert ours == named.pre_tokenize_str(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_chat_template_and_ends():
    model = smollm2()
    chat = model.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert chat.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert chat.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert model.tokenizer.encode("<|im_start|>")[0] == 1 and model.spec.eos_token_ids == (2,)
    assert model.tokenizer.decode([1, 2], skip_special_tokens=True) == ""
    assert (model.spec.rope.theta, model.spec.max_position, model.vocab_size) == (100000.0, 8192, 49152)


@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_half_precision_still_knows_the_capital_of_france(dtype, paged):
    model = load("packaged", dtype=dtype)
    prompt = model.tokenizer.apply_chat_template(
        [{"role": "user", "content": PROMPTS[0]}], add_generation_prompt=True, return_dict=True
    )["input_ids"]
    text = model.tokenizer.decode(paged(model).greedy("a", prompt, 8))
    assert text == "The capital of France is Paris.<|im_end|>"

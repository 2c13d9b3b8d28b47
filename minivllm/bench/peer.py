"""The same weights in transformers, for comparison: greedy decoding, same dtype, same threads, same prompt."""

import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch

from minivllm.llm import LLM
from minivllm.model.weights import LoadedModel
from minivllm.request import SamplingParams


def compare(llm: LLM, *, context: int = 128, tokens: int = 48, repeats: int = 3) -> Iterator[dict[str, Any]]:
    """Decode tokens/s of `transformers.generate` and of this engine at batch 1, then of this engine at batch 8.

    Time to the first token is left out: what counts is the time of `tokens` tokens less that of one. Raises `ValueError`
    for another architecture than Llama's.
    """
    assert llm.engine.model is not None
    theirs = to_transformers(llm.engine.model)
    prompt = [100 + i % 900 for i in range(context)]
    rates: dict[str, list[float]] = {"transformers, batch 1": [], "minivllm, batch 1": [], "minivllm, batch 8": []}
    for _ in range(repeats):  # in turns, so that whatever else the machine does hits all alike
        rates["transformers, batch 1"].append(_rate(lambda n: _their_seconds(theirs, prompt, n), tokens, 1))
        for batch in (1, 8):
            rates[f"minivllm, batch {batch}"].append(
                _rate(lambda n, b=batch: _our_seconds(llm, prompt, n, b), tokens, batch)
            )
    first = statistics.median(rates["transformers, batch 1"])
    for name, found in rates.items():
        rate = statistics.median(found)
        yield {"what": name, "decode tok/s": round(rate, 1), "of transformers": round(rate / first, 2)}


def to_transformers(model: LoadedModel) -> Any:
    """A transformers Llama that holds this model's tensors."""
    from transformers import LlamaConfig, LlamaForCausalLM

    spec, weights = model.spec, model.weights
    if spec.architecture != "LlamaForCausalLM":
        raise ValueError(f"the comparison is written for LlamaForCausalLM; this model is {spec.architecture}")
    config = LlamaConfig(
        vocab_size=spec.vocab_size, hidden_size=spec.hidden_size, intermediate_size=spec.intermediate_size,
        num_hidden_layers=spec.num_layers, num_attention_heads=spec.num_heads, num_key_value_heads=spec.num_kv_heads,
        max_position_embeddings=spec.max_position, rms_norm_eps=spec.rms_norm_eps, tie_word_embeddings=spec.tie_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": spec.rope.theta},
    )  # fmt: skip
    with torch.device("meta"):
        theirs = LlamaForCausalLM(config)
    tensors = {"model.embed_tokens.weight": weights.embed, "lm_head.weight": weights.lm_head}
    tensors["model.norm.weight"] = weights.final_norm
    q, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    for index, layer in enumerate(weights.layers):
        at = f"model.layers.{index}."
        tensors |= {
            at + "input_layernorm.weight": layer.input_norm,
            at + "post_attention_layernorm.weight": layer.post_norm,
        }
        tensors |= {at + "self_attn.o_proj.weight": layer.o, at + "mlp.down_proj.weight": layer.down}
        for name, part in zip("qkv", layer.qkv.split([q, kv, kv]), strict=True):
            tensors[f"{at}self_attn.{name}_proj.weight"] = part
        for name, part in zip(("gate", "up"), layer.gate_up.chunk(2), strict=True):
            tensors[f"{at}mlp.{name}_proj.weight"] = part
    theirs.load_state_dict(tensors, assign=True)
    theirs.model.rotary_emb = type(theirs.model.rotary_emb)(config)  # its buffers are not part of the state
    theirs.generation_config.eos_token_id = None  # both write as many tokens as they were asked for
    return theirs.eval()


def _rate(seconds: Any, tokens: int, batch: int) -> float:
    one, many = seconds(1), seconds(tokens)
    return batch * (tokens - 1) / (many - one)


@torch.inference_mode()
def _their_seconds(theirs: Any, prompt: list[int], tokens: int) -> float:
    ids = torch.tensor([prompt], device=theirs.device)
    began = time.perf_counter()
    theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, pad_token_id=0)
    return time.perf_counter() - began


def _our_seconds(llm: LLM, prompt: list[int], tokens: int, batch: int) -> float:
    llm.engine.reset_prefix_cache()
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    prompts = [[100 + index, *prompt[1:]] for index in range(batch)]
    began = time.perf_counter()
    llm.generate(prompts, params, use_tqdm=False)
    return time.perf_counter() - began

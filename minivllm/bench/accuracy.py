"""What a cheaper way of computing costs in quality: perplexity on real text, and the largest change of a log-probability.

The text goes through in chunks, so that every chunk but the first reads its past from the pool: a pool of 8-bit numbers
shows. The yardstick is float32 on the CPU.
"""

import math
from collections.abc import Iterator
from typing import Any

from minivllm.llm import LLM
from minivllm.request import SamplingParams

CHUNK = 64


def accuracy(model: Any, text: str, device: str, tokens: int = 1024) -> Iterator[dict[str, Any]]:
    """Perplexity of the first `tokens` tokens of `text` for float32 on the CPU and, on a GPU, bfloat16 with either pool."""
    settings = [("cpu", "float32", "auto")]
    if device.startswith("cuda"):
        settings += [(device, "bfloat16", "auto"), (device, "bfloat16", "fp8")]
    exact: list[float] = []
    for where, dtype, pool in settings:
        found = logprobs(model, text, tokens, device=where, dtype=dtype, kv_cache_dtype=pool)
        exact = exact or found
        row = {"what": "accuracy", "device": where, "dtype": dtype, "kv cache": pool, "tokens": len(found)}
        off = max(abs(a - b) for a, b in zip(exact, found, strict=True))
        yield {**row, "perplexity": round(math.exp(-sum(found) / len(found)), 4), "largest change": round(off, 4)}


def logprobs(model: Any, text: str, tokens: int, **options: Any) -> list[float]:
    """The model's log-probability of every token of `text` after the first, computed in chunks of 64 tokens."""
    with LLM(
        model, max_num_batched_tokens=CHUNK, max_num_seqs=1, max_model_len=tokens + 1, enforce_eager=True, **options
    ) as llm:
        ids = llm.get_tokenizer().encode(text)[:tokens]
        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
        entries = llm.generate([ids], params, use_tqdm=False)[0].prompt_logprobs
        return [entry[token].logprob for token, entry in zip(ids[1:], entries[1:], strict=True)]  # type: ignore[index]

"""What one token of KV cache costs, model by model, counting all heads or only KV heads."""

from typing import NamedTuple

from minivllm.config import kv_bytes_per_token
from minivllm.lab.experiments.result import Chart, Result

GIB = 1 << 30
CARD = 24e9


class Shape(NamedTuple):
    """The few numbers of a model that decide its KV cache."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    parameters: float
    source: str


SHAPES = {
    "7B (Llama-2)": Shape(32, 32, 32, 128, 6.74e9, "Touvron et al. 2023"),
    "7B with GQA (Mistral)": Shape(32, 32, 8, 128, 7.24e9, "Jiang et al. 2023"),
    "OPT-13B": Shape(40, 40, 40, 128, 13.0e9, "Zhang et al. 2022; the vLLM paper's 800 KB per token"),
    "SmolLM2-135M": Shape(30, 9, 3, 64, 0.135e9, "its config.json"),
    "Qwen3-0.6B": Shape(28, 16, 8, 128, 0.596e9, "its config.json"),
}


def run(tokens: int = 2048, dtype_bytes: int = 2) -> Result:
    """Bytes per token and per sequence of `tokens`, at `dtype_bytes` per number."""
    if tokens < 1 or dtype_bytes < 1:
        raise ValueError(f"tokens is {tokens}, dtype_bytes {dtype_bytes}; allowed: 1 or more of each")
    rows = []
    for name, shape in SHAPES.items():
        every = kv_bytes_per_token(shape.layers, shape.heads, shape.head_dim, dtype_bytes)
        really = kv_bytes_per_token(shape.layers, shape.kv_heads, shape.head_dim, dtype_bytes)
        weights = shape.parameters * dtype_bytes
        fit = int(max(0.0, CARD - weights) // (really * tokens))
        rows.append(
            (name, f"{shape.heads}/{shape.kv_heads}", every, really, every * tokens / GIB, really * tokens / GIB,
             8 * really * tokens / GIB, weights / 1e9, fit)
        )  # fmt: skip
    return Result(
        f"KV cache of one token and of {tokens:,} tokens, {8 * dtype_bytes}-bit",
        "2 × 32 layers × 32 heads × 128 × 2048 tokens × 2 bytes = 1 GiB per sequence; 7B weights 14 GB",
        ("model", "heads/KV heads", "bytes/token, all heads", "bytes/token", "GiB/seq, all heads", "GiB/seq",
         "GiB/8 seqs", "weights GB", "seqs in 24 GB"),
        rows,
        [
            "With grouped-query attention only KV heads are stored: Mistral's 7B needs a quarter of Llama-2's.",
            "Sequences in 24 GB: what the weights leave, without activations or a runtime's own memory.",
            "Shapes: " + "; ".join(f"{name}: {shape.source}" for name, shape in SHAPES.items()) + ".",
        ],
        Chart("bar", "model", ("GiB/seq, all heads", "GiB/seq")),
    )  # fmt: skip

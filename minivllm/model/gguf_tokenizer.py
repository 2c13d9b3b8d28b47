"""The tokenizer inside a GGUF file, built from its metadata: vocabulary, merges and chat template.

Byte-level BPE (Sennrich et al. 2016; GPT-2) first cuts text with regular expressions, then merges bytes
within each piece. The expressions are not in the file, only the name of the set, so a set we do not know is
an error: cut differently, the same text becomes other tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # kinds of token
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# `tokenizer.ggml.pre` -> the expressions, applied one after another
SPLITS = {"smollm": [r"\p{N}", GPT2], "gpt-2": [GPT2], "llama-bpe": [LLAMA3], "qwen2": [QWEN2]}
SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def build_tokenizer(metadata: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    """From GGUF metadata. Raises ValueError if it is not a byte-level BPE of a known kind, or incomplete."""
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != "gpt2" or pre not in SPLITS:
        raise ValueError(f"tokenizer {kind}/{pre} is not supported; supported: gpt2 with {', '.join(SPLITS)}")
    tokens, merges = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.merges")
    if not tokens or merges is None:
        raise ValueError("the metadata has no tokenizer.ggml.tokens or no tokenizer.ggml.merges")
    special = {
        name: tokens[metadata[f"tokenizer.ggml.{key}_token_id"]]
        for name, key in SPECIAL.items()
        if f"tokenizer.ggml.{key}_token_id" in metadata
    }
    backend = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ", 1)) for merge in merges],
            ignore_merges=pre == "llama-bpe",  # a piece that is a token as a whole is taken as it is
        )
    )
    cuts = [pre_tokenizers.Split(Regex(split), "isolated") for split in SPLITS[pre]]
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    kinds = metadata.get("tokenizer.ggml.token_type", [NORMAL] * len(tokens))
    for token, kind in zip(tokens, kinds, strict=True):
        if kind in (CONTROL, USER_DEFINED):  # never cut into bytes
            backend.add_tokens([AddedToken(token, special=kind == CONTROL, normalized=False)])
    if metadata.get("tokenizer.ggml.add_bos_token") and "bos_token" in special:
        bos = special["bos_token"]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, backend.token_to_id(bos))]
        )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False, **special)
    tokenizer.chat_template = metadata.get("tokenizer.chat_template")
    return tokenizer

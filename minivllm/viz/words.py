"""The tokens of a request as short words for a picture: decoded with a tokenizer, else as they were typed."""

from hashlib import blake2b
from typing import Any

MOST = 512
"""Tokens per request whose words are kept."""


class Words:
    """Words of token ids. Without a tokenizer `encode` makes an id of each word, equal words equal ids."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size
        self._typed: dict[int, str] = {}

    def encode(self, text: str) -> list[int]:
        """Token ids for a text in an engine without a tokenizer: one per word."""
        ids = []
        for word in text.split():
            token = int.from_bytes(blake2b(word.encode(), digest_size=4).digest(), "little") % self.vocab_size
            self._typed[token] = word
            ids.append(token)
        return ids

    def decode(self, tokens: list[int]) -> list[str]:
        """One short word per token, at most `MOST`."""
        if self.tokenizer is None:
            return [self._typed.get(t, str(t)) for t in tokens[:MOST]]
        return [str(self.tokenizer.decode([t])) for t in tokens[:MOST]]

"""From tokens to text, piece by piece: never half a character, never the beginning of a stop string.

A token is not a character: an emoji can take four. Text is shown only once it can no longer change: not while the
decoded tail ends in the replacement character, and not while it could still grow into a stop string.
"""

from collections.abc import Sequence
from typing import Protocol


class Tokenizer(Protocol):
    """The two methods of a Hugging Face tokenizer that are needed here."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        """Token ids to text."""

    def encode(self, text: str) -> list[int]:
        """Text to token ids."""


class Detokenizer:
    """Text of one request. `text` is final; `stopped` is the stop string that ended it, if one did.

    `context`: the tokens before it, which are not part of the text, but of how it is written: a space before a word.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: tuple[str, ...] = (), min_tokens: int = 0, context: Sequence[int] = ()
    ) -> None:
        self._tokenizer, self._stop, self._min_tokens = tokenizer, stop, min_tokens
        whole = context and not tokenizer.decode(list(context), skip_special_tokens=True).endswith("\ufffd")
        self._ids = list(context) if whole else []  # half a character is no context
        self._before = self._read = len(self._ids)
        self._from = 0  # tokens before this are settled: decoding starts a little earlier for context
        self._pending = ""
        self._taken = 0
        self.text = ""
        self.stopped: str | None = None

    @property
    def seen(self) -> int:
        """Tokens added so far."""
        return len(self._ids) - self._before

    def take(self) -> str:
        """What became visible since the last call."""
        piece = self.text[self._taken :]
        self._taken = len(self.text)
        return piece

    def add(self, token: int) -> str:
        """One more token; returns the text that became visible through it."""
        self._ids.append(token)
        settled = self._tokenizer.decode(self._ids[self._from : self._read], skip_special_tokens=True)
        whole = self._tokenizer.decode(self._ids[self._from :], skip_special_tokens=True)
        if len(whole) > len(settled) and not whole.endswith("\ufffd"):
            self._pending += whole[len(settled) :]
            self._from, self._read = self._read, len(self._ids)
        at = self._search()
        return self._show(len(self._pending) - self._held() if at is None else at)

    def finish(self) -> str:
        """The request ended otherwise than by a stop string: every whole character held back becomes visible."""
        if self._read < len(self._ids) and self.stopped is None:
            settled = self._tokenizer.decode(self._ids[self._from : self._read], skip_special_tokens=True)
            whole = self._tokenizer.decode(self._ids[self._from :], skip_special_tokens=True)
            self._pending += whole[len(settled) :].rstrip("\ufffd")  # half a character at the end stays out
            self._read = len(self._ids)
            if (at := self._search()) is not None:
                return self._show(at)
        return self._show(len(self._pending) if self.stopped is None else 0)

    def _search(self) -> int | None:
        """Where the first stop string begins in what is not shown yet; it is `stopped` from then on."""
        found = (
            [(at, s) for s in self._stop if (at := self._pending.find(s)) >= 0] if self.seen >= self._min_tokens else []
        )
        if not found:
            return None
        at, self.stopped = min(found, key=lambda item: item[0])
        return at

    def _held(self) -> int:
        """Length of the longest tail that is the beginning of a stop string."""
        longest = max((len(s) for s in self._stop), default=1) - 1
        for size in range(min(longest, len(self._pending)), 0, -1):
            if any(s.startswith(self._pending[-size:]) for s in self._stop):
                return size
        return 0

    def _show(self, count: int) -> str:
        piece, self._pending = self._pending[:count], self._pending[count:]
        self.text += piece
        return piece

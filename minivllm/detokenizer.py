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
        return self.settle()

    def settle(self) -> str:
        """Read on to the newest token, which `add` may not have got round to."""
        settled = self._tokenizer.decode(self._ids[self._from : self._read], skip_special_tokens=True)
        whole = self._tokenizer.decode(self._ids[self._from :], skip_special_tokens=True)
        if len(whole) > len(settled) and not whole.endswith("\ufffd"):
            fresh, read = whole[len(settled) :], len(self._ids)
            self._pending, self._from, self._read = self._pending + fresh, self._read, read  # no call in between
        at, stop = self._search()
        return self._show(len(self._pending) - self._held() if stop is None else at, stop)

    def finish(self) -> str:
        """The request ended otherwise than by a stop string: every whole character held back becomes visible."""
        if self._read < len(self._ids) and self.stopped is None:
            settled = self._tokenizer.decode(self._ids[self._from : self._read], skip_special_tokens=True)
            whole = self._tokenizer.decode(self._ids[self._from :], skip_special_tokens=True)
            # half a character at the end stays out
            fresh, read = whole[len(settled) :].rstrip("\ufffd"), len(self._ids)
            self._pending, self._read = self._pending + fresh, read
            at, stop = self._search()
            if stop is not None:
                return self._show(at, stop)
        return self._show(len(self._pending) if self.stopped is None else 0)

    def _search(self) -> tuple[int, str | None]:
        """The first stop string in what is not shown yet, and where it begins."""
        found = (
            [(at, s) for s in self._stop if (at := self._pending.find(s)) >= 0] if self.seen >= self._min_tokens else []
        )
        return min(found, key=lambda item: item[0]) if found else (0, None)

    def _held(self) -> int:
        """Length of the longest tail that is the beginning of a stop string."""
        longest = max((len(s) for s in self._stop), default=1) - 1
        for size in range(min(longest, len(self._pending)), 0, -1):
            if any(s.startswith(self._pending[-size:]) for s in self._stop):
                return size
        return 0

    def _show(self, count: int, stop: str | None = None) -> str:
        """Text and what is left of it change together: no call in between, where an interrupt could come in."""
        piece, rest, stopped = self._pending[:count], self._pending[count:], self.stopped if stop is None else stop
        self.text, self._pending, self.stopped = self.text + piece, rest, stopped
        return piece

"""Why one timestamp empties the prefix cache: two prompts side by side, block by block, each under its real hash.

Everything is computed here, with the engine's own hash; the browser draws it and sends what is chosen.
"""

from collections.abc import Sequence
from typing import Any

import traitlets

from minivllm import allowed
from minivllm.narrate import count
from minivllm.viz import bundle, static
from minivllm.viz.chain_card import card, line
from minivllm.viz.chain_rows import Pair, brief
from minivllm.viz.playable import Playable

SIZES = (2, 4, 8)


class HashChains(Playable):
    """Prompt A, `cached`, beside prompt B, `arrived`: lists of words, each one token. `show()` displays the picture.

    `movable`: a word of B that differs from A's at the same index, such as a timestamp; `place()` moves both words to
    another block. The tick of other widgets is a row here: the one in focus. Raises `ValueError` for an empty prompt.
    """

    _esm = bundle.module("hash_chains")
    _css = bundle.css("base", "hash_chains")

    picture = traitlets.Dict().tag(sync=True)

    def __init__(
        self, cached: Sequence[str], arrived: Sequence[str], *, block_size: int = 4, chained: bool = True,
        movable: str | None = None,
    ) -> None:  # fmt: skip
        self._prompts = _words("cached", cached), _words("arrived", arrived)
        self._chained, self._size = allowed.flag("chained", chained), _size(block_size)
        self._home = self._at = None if movable is None else self._find(movable)
        super().__init__(title="hash chains", picture=self._draw())

    def __repr__(self) -> str:
        kind = "parent hash + tokens" if self.chained else "tokens alone"
        return f"HashChains(block_size {self.block_size}, hash of {kind}: {self.pair.headline})"

    # -- what it shows -------------------------------------------------------------------------------------------

    @property
    def chained(self) -> bool:
        """Whether a block's hash contains its parent's; `set("chained", False)` leaves the past out."""
        return self._chained

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._size

    @property
    def hits(self) -> int:
        """Blocks of B that A's hashes answer; chained, exactly those that the engine would reuse."""
        return self.pair.hits

    @property
    def first_mismatch(self) -> tuple[int, int] | None:
        """Token index and block index of the first difference; None if one prompt is the beginning of the other."""
        miss = self.pair.miss
        return None if miss.index is None or miss.block is None else (miss.index, miss.block)

    @property
    def sentence(self) -> str:
        """What the picture shows, in words: printed above it and read aloud."""
        return "".join(part if isinstance(part, str) else part["b"] for part in self.pair.say())

    @property
    def edge(self) -> int:
        """The last row."""
        return len(self.pair.rows) - 1

    # -- what it does --------------------------------------------------------------------------------------------

    def set(self, name: str, value: Any) -> None:
        """Choose `chained` (True, False), `block_size` (2, 4, 8) or `place` (see `place()`). Raises `ValueError`."""
        match name:
            case "chained":
                self._chained = allowed.flag("chained", value)
            case "block_size":
                self._size = _size(value)
            case "place" if self._home is not None:
                last = (self._shorter - 1) // self._size
                self._at = self._index(allowed.whole("place", value, 0, last, ", a block that both prompts have"))
            case _:
                names = "chained, block_size" + ", place" * (self._home is not None)
                raise ValueError(f"{name!r} cannot be changed here; it can be {names}")
        self.picture = self._draw()
        self.tick = self.tick

    def place(self, block: int) -> None:
        """Move the movable word into a block, in both prompts. Raises `ValueError` for a block they do not have."""
        self.set("place", block)

    def dispatch(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answer a message: a setting, or those of every player."""
        match message:
            case {"type": "set", "name": name, "value": value}:
                self.set(name, value)
                return {}
        return super().dispatch(message)

    def static(self) -> dict[str, str]:
        """The picture as it is now, for readers without a kernel: `text/plain` and `text/html`."""
        say = f"{self.pair.headline}. {self.sentence}"
        plain = [say, *(line(block, row) for block, row in enumerate(self.pair.rows))]
        return {"text/plain": "\n".join(plain), "text/html": static.image(card(self.pair, self.sentence), say)}

    # -- how it is made ------------------------------------------------------------------------------------------

    @property
    def _shorter(self) -> int:
        return min(map(len, self._prompts))

    def _find(self, movable: str) -> int:
        pairs = list(zip(*self._prompts, strict=False))
        others = [b for a, b in pairs if a != b]
        if movable not in others:
            words = f"a word of arrived that differs from cached at its index: {', '.join(map(repr, others)) or 'none'}"
            raise ValueError(f"movable is {movable!r}; allowed: {words}")
        return next(at for at, (a, b) in enumerate(pairs) if a != b and b == movable)

    def _index(self, block: int) -> int:
        """Where the movable word stands in a block: at the slot it came from, as far as the prompts go."""
        return min(block * self._size + (self._home or 0) % self._size, self._shorter - 1)

    def _pair(self, at: int | None, chained: bool) -> Pair:
        prompts = list(self._prompts)
        if self._home is not None and at is not None:
            for side, words in enumerate(prompts):
                rest = words[: self._home] + words[self._home + 1 :]
                prompts[side] = [*rest[:at], words[self._home], *rest[at:]]
        return Pair(prompts[0], prompts[1], self._size, chained)

    def _draw(self) -> dict[str, Any]:
        """Compare anew: `pair` for Python, and the same as plain data for the browser."""
        self.pair = pair = self._pair(self._at, self._chained)
        return {
            "headline": pair.headline, "say": pair.say(), "rows": [row._asdict() for row in pair.rows],
            "notes": pair.notes(), "why": pair.why(), "parts": pair.miss.block, "sizes": SIZES,
            "chained": self._chained, "block_size": self._size, "move": self._moves(),
        }  # fmt: skip

    def _moves(self) -> dict[str, Any] | None:
        """Blocks hit for every block in which the movable word could stand, always by the chained hash."""
        if self._home is None or self._at is None:
            return None
        blocks = range(-(-self._shorter // self._size))
        here = self._at // self._size
        hits = [self._pair(self._at if k == here else self._index(k), True).hits for k in blocks]
        best, total = max(hits), self.pair.total
        kept = f"{best} of {total}, {best * self._size} of {count(len(self._prompts[1]), 'token')} kept"
        word = self._prompts[1][self._home]
        return {
            "word": brief(word), "kind": self._pair(self._home, True).kind if total else "", "block": here,
            "hits": hits, "kept": kept, "early": any(h < k for k, h in zip(blocks, hits, strict=True)),
        }  # fmt: skip


def _size(value: Any) -> int:
    if isinstance(value, bool) or value not in SIZES:
        raise ValueError(f"block_size is {value!r}; allowed: {', '.join(map(str, SIZES))}")
    return int(value)


def _words(name: str, given: Sequence[str]) -> list[str]:
    words = [] if isinstance(given, str) else list(given)
    if not words or not all(isinstance(w, str) and w and w.isprintable() and " " not in w for w in words):
        raise ValueError(f"{name} is {allowed.shown(given)}; allowed: a list of words without spaces, at least one")
    return words

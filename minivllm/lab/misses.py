"""Two prompts that should share a prefix and do not: which block differs first, which token, and the text around it.

Compare token ids, not strings: a space more, or the same letters cut into other tokens, and nothing is shared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minivllm.core.hashing import chain
from minivllm.narrate import count


@dataclass(frozen=True)
class Miss:
    """Where two prompts part, as the prefix cache sees it. `block` and `index` are None when one begins the other."""

    block: int | None
    index: int | None
    tokens: tuple[int | None, int | None]
    hashes: tuple[tuple[str, ...], tuple[str, ...]]
    around: tuple[str, str] | None
    block_size: int

    def __str__(self) -> str:
        rows = zip(*self.hashes, strict=False)
        agreed = sum(a == b for a, b in rows)
        longest = max(map(len, self.hashes))
        lines = [f"{count(agreed, 'full block')} of {self.block_size} tokens {'agrees' if agreed == 1 else 'agree'}"]
        shown = sorted({*range(min(2, agreed)), *range(max(0, agreed - 1), min(longest, agreed + 2))})
        for at, index in enumerate(shown):
            if at and index > shown[at - 1] + 1:
                lines.append("   …")
            pair = [names[index] if index < len(names) else "(not full)" for names in self.hashes]
            lines.append(f"  block {index:>3}  {pair[0]:<12} {'=' if pair[0] == pair[1] else '≠'} {pair[1]}")
        if self.index is None:
            return "\n".join([*lines, "no token differs: one prompt is the beginning of the other"])
        a, b = self.tokens
        lines.append(f"first different token: index {self.index}, in block {self.block}: {a} ≠ {b}")
        if self.around:
            lines += [f"  a: {self.around[0]}", f"  b: {self.around[1]}"]
        return "\n".join(lines)


def explain_miss(a: str | Sequence[int], b: str | Sequence[int], block_size: int, tokenizer: Any = None) -> Miss:
    """Why prompt `b` does not hit what `a` left in the cache: their block hashes side by side, the first difference.

    Prompts are token ids, or texts with a `tokenizer`, which then also shows the text around the place. Raises
    `ValueError` for a text without a tokenizer.
    """
    if block_size < 1:
        raise ValueError(f"block_size is {block_size}; allowed: 1 or more")
    if tokenizer is None and (isinstance(a, str) or isinstance(b, str)):
        raise ValueError(
            "to compare texts give their tokenizer, or compare token ids: equal-looking texts can differ in them"
        )
    first, second = (list(tokenizer.encode(p)) if isinstance(p, str) else [int(t) for t in p] for p in (a, b))
    hashes = tuple(tuple(h.hex()[:12] for h in chain(tokens, block_size)) for tokens in (first, second))
    index = next((i for i, (x, y) in enumerate(zip(first, second, strict=False)) if x != y), None)
    around = None
    if index is not None and tokenizer is not None:
        pieces = [
            [tokenizer.decode(part) for part in (t[max(0, index - 6) : index], t[index : index + 6])]
            for t in (first, second)
        ]
        around = (f"{pieces[0][0]!r} → {pieces[0][1]!r}", f"{pieces[1][0]!r} → {pieces[1][1]!r}")
    return Miss(
        None if index is None else index // block_size,
        index,
        (None, None) if index is None else (first[index], second[index]),
        (hashes[0], hashes[1]),
        around,
        block_size,
    )

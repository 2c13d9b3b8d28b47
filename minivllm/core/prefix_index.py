"""The prefix cache's memory: from a block's chained hash to the physical blocks that hold its K/V.

A hash maps to a *set* of blocks, since two requests may compute the same prefix at the same time; an entry goes only
with its own block. Only full, computed blocks are here.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Content(NamedTuple):
    """What a published block really holds: its tokens, and the content before. Compared when hashes are not trusted."""

    parent: "Content | None"
    tokens: tuple[int, ...]
    extra: tuple[tuple[str, str], ...]


class PrefixIndex:
    """hash -> blocks and block -> hash, kept equal. `verify` compares tokens along the chain on every match."""

    def __init__(self, verify: bool = False) -> None:
        self.verify = verify
        self.blocks: dict[bytes, dict[int, None]] = {}  # a dict is a set that remembers its order
        self.hash_of: dict[int, bytes] = {}
        self._content: dict[int, Content] = {}

    def match(
        self,
        hashes: Sequence[bytes],
        tokens: Sequence[int] = (),
        block_size: int = 0,
        extra: tuple[tuple[str, str], ...] = (),
    ) -> list[int]:
        """Blocks holding the longest known run of `hashes` from the front; matching stops at the first miss."""
        if self.verify:
            return self._match_content(hashes, tokens, block_size, extra)
        found: list[int] = []
        for digest in hashes:
            blocks = self.blocks.get(digest)
            if not blocks:
                break
            found.append(next(iter(blocks)))
        return found

    def _match_content(
        self, hashes: Sequence[bytes], tokens: Sequence[int], block_size: int, extra: tuple[tuple[str, str], ...]
    ) -> list[int]:
        """The same for hashes that are not trusted: a block is found only if it holds these tokens, after these."""
        found: list[int] = []
        past: Content | None = None
        for index, digest in enumerate(hashes):
            past = Content(past, tuple(tokens[index * block_size : (index + 1) * block_size]), extra)
            block = next((b for b in self.blocks.get(digest, ()) if _same(self._content[b], past)), None)
            if block is None:
                break
            found.append(block)
            past = self._content[block]  # equal, and shared by what was published after it: compared at a glance
        return found

    def publish(self, block: int, digest: bytes, content: Content | None = None) -> None:
        """Make `block` findable under `digest`. Publishing a block twice under one digest changes nothing."""
        self.blocks.setdefault(digest, {})[block] = None
        self.hash_of[block] = digest
        if content is not None:
            self._content[block] = content

    def content(self, block: int) -> Content | None:
        """What a published block holds, if contents are kept."""
        return self._content.get(block)

    def forget(self, block: int) -> bytes | None:
        """Drop one block's entry and return its hash (None if it had none); other blocks of that hash stay."""
        digest = self.hash_of.pop(block, None)
        if digest is not None:
            del self.blocks[digest][block]
            if not self.blocks[digest]:
                del self.blocks[digest]
            self._content.pop(block, None)
        return digest

    def __len__(self) -> int:
        return len(self.hash_of)


def _same(a: Content | None, b: Content | None) -> bool:
    """Equal along the whole chain, without recursion: a long prompt would overflow the stack."""
    while a is not b:
        if a is None or b is None or a.tokens != b.tokens or a.extra != b.extra:
            return False
        a, b = a.parent, b.parent
    return True

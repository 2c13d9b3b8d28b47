"""A block's name: a hash over its parent's name and its own tokens, so that equal names mean equal *prefixes*.

The K/V of a token depends on every token before it. A hash of a block's tokens alone would let equal tokens after
different prefixes share K/V, which is wrong text; chaining the parent's digest makes the whole past part of the name.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import Struct, pack

ExtraKeys = tuple[tuple[str, str], ...]
Hasher = Callable[[bytes, Sequence[int], ExtraKeys], bytes]

ROOT = b""


@lru_cache
def _packer(count: int) -> Callable[..., bytes]:
    return Struct(f"<{count}q").pack  # 64-bit little-endian, whatever the machine


def block_hash(parent: bytes, tokens: Sequence[int], extra: ExtraKeys = ()) -> bytes:
    """128-bit digest of (parent digest, token ids, tagged extra keys); equal in every process and for every int type.

    `parent` is ROOT for the first block. `extra` holds what else the K/V depends on or must be kept apart by, each
    tagged: ("adapter", name), ("salt", secret). It enters the first block and reaches the others through the chain.
    """
    past = parent
    if not parent:
        for part in (text.encode("utf-8", "surrogatepass") for tagged in extra for text in tagged):
            past += pack("<q", len(part)) + part
    return blake2b(past + _packer(len(tokens))(*tokens), digest_size=16).digest()


def chain(tokens: Sequence[int], block_size: int, extra: ExtraKeys = (), hasher: Hasher = block_hash) -> list[bytes]:
    """The hash of every *full* block of `tokens`, first block first. The unfinished last block has no name yet."""
    hashes: list[bytes] = []
    parent = ROOT
    for end in range(block_size, len(tokens) + 1, block_size):
        parent = hasher(parent, tokens[end - block_size : end], extra)
        hashes.append(parent)
    return hashes

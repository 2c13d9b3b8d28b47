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


@lru_cache(maxsize=1 << 14)  # prompts that begin alike: looking a digest up costs a third of computing it
def _digest(parent: bytes, tokens: tuple[int, ...], extra: ExtraKeys) -> bytes:
    past = parent
    if not parent:
        for part in (text.encode("utf-8", "surrogatepass") for tagged in extra for text in tagged):
            past += pack("<q", len(part)) + part
    return blake2b(past + _packer(len(tokens))(*tokens), digest_size=16).digest()


def _hasher(block_size: int) -> Hasher:
    """Large blocks are not remembered: they are fewer, and would take the memory of all their tokens."""
    return _digest if block_size <= 32 else _digest.__wrapped__


def block_hash(parent: bytes, tokens: Sequence[int], extra: ExtraKeys = ()) -> bytes:
    """128-bit digest of (parent digest, token ids, tagged extra keys); equal in every process and for every int type.

    `parent` is ROOT for the first block. `extra` holds what else the K/V depends on or must be kept apart by, each
    tagged: ("adapter", name), ("salt", secret). It enters the first block and reaches the others through the chain.
    """
    return _hasher(len(tokens))(parent, tuple(tokens), extra)


def extend(
    hashes: list[bytes], tokens: Sequence[int], count: int, block_size: int, extra: ExtraKeys, hasher: Hasher
) -> None:
    """Append to `hashes`, those of the first blocks of `tokens`, the following ones, until there are `count`.

    Raises `ValueError` if the hasher returns anything but bytes.
    """
    parent = hashes[-1] if hashes else ROOT
    if hasher is block_hash:
        hasher = _hasher(block_size)  # the same without a call in between: `fresh` is a tuple already
    fresh = tuple(tokens[len(hashes) * block_size : count * block_size])
    for start in range(0, len(fresh), block_size):
        parent = hasher(parent, fresh[start : start + block_size], extra)
        if not isinstance(parent, bytes):
            raise ValueError(f"the hasher returned {parent!r}; allowed: bytes")
        hashes.append(parent)


def chain(tokens: Sequence[int], block_size: int, extra: ExtraKeys = (), hasher: Hasher = block_hash) -> list[bytes]:
    """The hash of every *full* block of `tokens`, first block first. The unfinished last block has no name yet."""
    hashes: list[bytes] = []
    extend(hashes, tokens, len(tokens) // block_size, block_size, extra, hasher)
    return hashes

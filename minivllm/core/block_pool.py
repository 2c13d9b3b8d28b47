"""Physical blocks: who counts on each (reference counts), and which is handed out next (the free queue).

Free blocks that hold nothing are taken first, oldest release first; then the eviction order decides which cached block
gives its content up. A block with a reference is in neither queue. Take, share and release are O(1).
"""

from collections import deque
from collections.abc import Iterator

from minivllm.core.eviction import LRU, Eviction


class BlockPool:
    """`num_blocks` ids with a reference count each. `ref[b] == 0` exactly when `b` is free or evictable."""

    def __init__(self, num_blocks: int, eviction: Eviction | None = None) -> None:
        self.num_blocks = num_blocks
        self.ref = [0] * num_blocks
        self.free: deque[int] = deque(range(num_blocks))  # ref 0, content worthless
        self.cached: Eviction = LRU() if eviction is None else eviction  # ref 0, content can still be hit

    @property
    def available(self) -> int:
        """Blocks that can be had now: free and evictable ones."""
        return len(self.free) + len(self.cached)

    def take(self) -> int:
        """Hand out a block with ref 1. The caller forgets the hash of a block that came from the cached ones.

        Raises `RuntimeError` when every block is referenced.
        """
        if not self.available:
            raise RuntimeError(f"no block left: all {self.num_blocks} are referenced")
        block = self.free.popleft() if self.free else self._victim()
        self.ref[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more reference; a ref-0 hit leaves the eviction order first, so that nobody can take it any more."""
        if self.ref[block] == 0:
            self.cached.remove(block)
        self.ref[block] += 1

    def release(self, block: int, keep: bool) -> None:
        """One reference less; at 0 the block becomes evictable if its content is worth keeping, else free.

        Raises `RuntimeError` on a block nobody holds: a double free.
        """
        if self.ref[block] <= 0:
            raise RuntimeError(f"double free: block {block} has ref {self.ref[block]}")
        self.ref[block] -= 1
        if self.ref[block] == 0:
            self.cached.insert(block) if keep else self.free.append(block)

    def evict(self) -> int:
        """Move the next victim of the eviction order to the free blocks and return it."""
        block = self._victim()
        self.free.append(block)
        return block

    def _victim(self) -> int:
        block = self.cached.pop()
        if not isinstance(block, int) or not 0 <= block < self.num_blocks or self.ref[block]:
            raise ValueError(
                f"the eviction order gave up {block!r}; allowed: a block that was inserted and not removed or popped since"
            )
        return block

    def __iter__(self) -> Iterator[int]:
        """The free queue as one line: next block to be taken first."""
        yield from self.free
        yield from self.cached

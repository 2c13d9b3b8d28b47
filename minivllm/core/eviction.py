"""Which cached block dies first: the order in which unreferenced blocks that still hold a prefix are given up."""

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from itertools import count
from typing import Protocol


class Eviction(Protocol):
    """The order of the evictable blocks. Write these five methods and hand the class to `Engine(eviction=…)`: a pool makes its own.

    A block is inserted when its last reference goes, removed when a hit revives it, popped when the pool needs it.
    Tails of a request are inserted before its heads. Iteration shows the order, next victim first.
    """

    def insert(self, block: int) -> None:
        """The last reference to `block` went: it may be given up from now on."""

    def remove(self, block: int) -> None:
        """`block` was hit: it may not be given up."""

    def pop(self) -> int:
        """Give up the next victim."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[int]: ...


class LRU:
    """Least recently used first: a hit takes the block out, its next release puts it at the back. All O(1)."""

    def __init__(self) -> None:
        self._order: OrderedDict[int, None] = OrderedDict()

    def insert(self, block: int) -> None:
        """`block` was just released: it is the youngest."""
        self._order[block] = None

    def remove(self, block: int) -> None:
        """`block` was hit."""
        del self._order[block]

    def pop(self) -> int:
        """Give up the oldest."""
        return self._order.popitem(last=False)[0]

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[int]:
        return iter(self._order)


class FIFO:
    """First cached, first out: a hit does not make a block younger. A heap with lazy deletion, O(log n)."""

    def __init__(self) -> None:
        self._age = count()
        self._born: dict[int, int] = {}  # kept through hits, dropped when the block is given up
        self._live: set[int] = set()
        self._queued: set[int] = set()  # has its one entry in the heap, live or not
        self._heap: list[tuple[int, int]] = []

    def insert(self, block: int) -> None:
        """`block` takes the place of its first insertion."""
        born = self._born.setdefault(block, next(self._age))
        self._live.add(block)
        if block not in self._queued:
            self._queued.add(block)
            heapq.heappush(self._heap, (born, block))

    def remove(self, block: int) -> None:
        """`block` was hit; its age stays."""
        self._live.remove(block)

    def pop(self) -> int:
        """Give up the block that was cached first."""
        while True:
            _, block = heapq.heappop(self._heap)
            self._queued.remove(block)
            if block in self._live:
                self._live.remove(block)
                del self._born[block]
                return block

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._live, key=self._born.__getitem__))


BY_NAME: dict[str, type[LRU] | type[FIFO]] = {"lru": LRU, "fifo": FIFO}

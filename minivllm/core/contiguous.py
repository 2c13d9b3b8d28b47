"""The baseline that paging replaced: one contiguous extent per request, reserved before anyone knows how long it gets.

The same interface as the paged manager, and the same kernels: an extent is a block table that happens to be
consecutive. Three reservation rules (Kwon et al. 2023, §6.1, "Orca (Max)", "(Pow2)", "(Oracle)") over a buddy
allocator, as there, or over first-fit extents. `max_tokens` stands for the true output length, which a real server
could not know.
"""

from typing import Protocol

from minivllm.core.cache import Growth, Shortage
from minivllm.events import Bus, Release, Reserve
from minivllm.request import Request


class Allocator(Protocol):
    """Finds and frees runs of consecutive blocks."""

    def allocate(self, size: int) -> tuple[int, int] | None:
        """`(base, blocks)` of a run of at least `size` blocks, or None."""

    def free(self, base: int, size: int) -> None:
        """Give back what `allocate` returned."""

    def holes(self) -> list[tuple[int, int]]:
        """Free runs `(base, blocks)`, by address."""


class Buddy:
    """Extents of 2^k blocks: split in halves to allocate, merge with the other half (the buddy) when freed.

    A pool that is no power of two starts as several: 24 = 16 + 8.
    """

    def __init__(self, num_blocks: int) -> None:
        self._free: dict[int, set[int]] = {1 << k: set() for k in range(num_blocks.bit_length())}
        base = 0
        for size in sorted(self._free, reverse=True):
            if num_blocks & size:
                self._free[size].add(base)
                base += size

    def allocate(self, size: int) -> tuple[int, int] | None:
        """`(base, blocks)` with blocks = `size` rounded up to a power of two, or None: no hole is large enough."""
        want = 1 << (size - 1).bit_length()
        have = next((s for s in sorted(self._free) if s >= want and self._free[s]), None)
        if have is None:
            return None
        base = min(self._free[have])
        self._free[have].remove(base)
        while have > want:
            have //= 2
            self._free[have].add(base + have)
        return base, want

    def free(self, base: int, size: int) -> None:
        """Give an extent back, merging buddies upwards."""
        while base ^ size in self._free.get(size, ()):
            self._free[size].remove(base ^ size)
            base, size = min(base, base ^ size), size * 2
        self._free[size].add(base)

    def holes(self) -> list[tuple[int, int]]:
        """Free extents `(base, blocks)`, by address."""
        return sorted((base, size) for size, bases in self._free.items() for base in bases)


class FirstFit:
    """Extents of any length, taken from the first hole that is long enough; neighbouring holes merge."""

    def __init__(self, num_blocks: int) -> None:
        self._holes = [(0, num_blocks)]

    def allocate(self, size: int) -> tuple[int, int] | None:
        """`(base, size)`, or None: no hole is large enough."""
        for at, (base, length) in enumerate(self._holes):
            if length >= size:
                self._holes[at : at + 1] = [(base + size, length - size)] if length > size else []
                return base, size
        return None

    def free(self, base: int, size: int) -> None:
        """Give an extent back."""
        merged: list[tuple[int, int]] = []
        for start, length in sorted([*self._holes, (base, size)]):
            if merged and merged[-1][0] + merged[-1][1] == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self._holes = merged

    def holes(self) -> list[tuple[int, int]]:
        """Free extents `(base, blocks)`, by address."""
        return list(self._holes)


ALLOCATORS: dict[str, type[Buddy] | type[FirstFit]] = {"buddy": Buddy, "first-fit": FirstFit}


class ContiguousManager:
    """One extent per request, as long as its reservation. No sharing, no growth, no prefix cache."""

    prefix_caching = False

    def __init__(
        self, num_blocks: int, block_size: int, *, bus: Bus | None = None, reservation: str = "max",
        allocator: Allocator | None = None, max_model_len: int = 2048,
    ) -> None:  # fmt: skip
        self.num_blocks, self.block_size = num_blocks, block_size
        self.reservation, self.max_model_len = reservation, max_model_len
        self.allocator = Buddy(num_blocks) if allocator is None else allocator
        self.largest = max(size for _, size in self.allocator.holes())
        self.extents: dict[str, tuple[int, int, int]] = {}  # request -> (base, blocks, blocks it may ever use)
        self.bus = Bus() if bus is None else bus

    def reserved(self, request: Request) -> int:
        """Tokens a request reserves: the model's maximum, or prompt and output (rounded up to a power of two)."""
        output = min(request.params.max_tokens or self.max_model_len, self.max_model_len - request.prompt_len)
        if self.reservation == "max":
            return self.max_model_len
        if self.reservation == "pow2":
            return min(request.prompt_len + (1 << (output - 1).bit_length()), self.max_model_len)
        return request.prompt_len + output

    def capacity(self, request: Request) -> int:
        """Tokens of K/V this request can hold: its reservation if the empty pool has an extent for it, else 0."""
        tokens = self.reserved(request)
        return tokens if -(-tokens // self.block_size) <= self.largest else 0

    def match(self, request: Request) -> list[int]:
        """Nothing is ever shared."""
        return []

    def open(self, request: Request, spare: int = 0) -> Shortage | None:
        """Reserve an extent or change nothing; `reason` is "hole" when enough is free but not in one piece."""
        need = -(-self.reserved(request) // self.block_size)
        extent = self.allocator.allocate(need)
        if extent is None:
            holes = [size for _, size in self.allocator.holes()]
            fragmented = sum(holes) >= need
            return Shortage(
                need, max(holes, default=0) if fragmented else sum(holes), "hole" if fragmented else "memory"
            )
        base, blocks = extent
        self.extents[request.id] = (base, blocks, need)
        request.table = list(range(base, base + need))
        request.num_computed = request.num_scheduled = 0
        if self.bus.active:
            self.bus.emit(Reserve(request.id, base, blocks, need))
        return None

    def grow(self, request: Request, end: int) -> Growth | None:
        """Everything was reserved at the start; nothing is ever needed."""
        return Growth([], [])

    def publish(self, request: Request) -> None:
        """No prefix cache: nothing to publish."""

    def fork(self, parent: Request, child: Request) -> bool:
        """An extent cannot be shared: the child must compute its prompt itself."""
        return False

    def close(self, request: Request) -> None:
        """Give the extent back."""
        if request.id in self.extents:
            base, blocks, _ = self.extents.pop(request.id)
            self.allocator.free(base, blocks)
            if self.bus.active:
                for block in reversed(request.table):
                    self.bus.emit(Release(request.id, block, 0, False))
        request.table = []

    def reset(self) -> tuple[int, ...] | None:
        """There is no prefix cache to empty."""
        return None if self.extents else ()

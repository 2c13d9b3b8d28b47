"""Every slot of the pool has one fate at the end of a tick, and the six add up to the whole pool.

used      K/V of a live request, and blocks with a reference that no live request explains
reserved  empty, but held by a request that will still write it
internal  empty, and held by a request that never will: over-reservation, or the end of a last block
external  of no use to anybody: the rounding of an extent, and the holes while the next in line is refused (contiguous)
cached    no request's, but a prefix that can be hit
free      the rest

The first four are those of Kwon et al. 2023, Figure 2.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from minivllm import events as ev


class Use(NamedTuple):
    """The pool at the end of one tick, in slots; `used` to `free` add up to `total`. `seconds`: the metrics' clock."""

    tick: int
    seconds: float
    total: int
    used: int
    reserved: int
    internal: int
    external: int
    cached: int
    free: int
    running: int
    waiting: int
    rounding: int = 0  # contiguous: the part of `external` inside extents

    @property
    def held(self) -> int:
        """Slots that requests may use and others may not."""
        return self.used + self.reserved + self.internal

    @property
    def utilization(self) -> float:
        """Share of the held slots that carry K/V; 1 when nothing is held."""
        return self.used / self.held if self.held else 1.0


@dataclass
class _Held:
    """What one live request holds."""

    final: int  # positions of K/V it will have in the end: its last token is never fed back
    computed: int = 0
    table: dict[int, int] = field(default_factory=dict)
    extent: tuple[int, int] = (0, 0)  # contiguous: blocks held, blocks it may use

    def drop(self) -> None:
        """It was preempted, or the pool is new."""
        self.computed, self.table, self.extent = 0, {}, (0, 0)


class PoolWatch:
    """Follows one engine's events; `use()` says where its slots are. What will be written is judged by max_tokens."""

    def __init__(self) -> None:
        self.block_size, self.num_blocks = 1, 0
        self.contiguous = False
        self.live: dict[str, _Held] = {}
        self.running: dict[str, None] = {}
        self._refs: dict[int, int] = {}  # block -> references, where above 0
        self._cached: set[int] = set()
        self._refused = False  # in this tick, for want of memory

    def __call__(self, event: ev.Event) -> None:
        """Let one event happen."""
        handler = getattr(self, f"_on_{event.kind}", None)
        if handler:
            handler(event)

    def use(self, tick: int, seconds: float) -> Use:
        """The fate of every slot now."""
        size, total = self.block_size, self.block_size * self.num_blocks
        live = [self.live[name] for name in self.running]
        rounding = cached = external = 0
        if self.contiguous:
            used = sum(held.computed for held in live)
            reserved = sum(min(held.final, held.extent[1] * size) - held.computed for held in live)
            internal = sum(held.extent[1] for held in live) * size - used - reserved
            rounding = external = sum(blocks - usable for blocks, usable in (held.extent for held in live)) * size
            free = total - used - reserved - internal - external
            if self._refused:
                external, free = external + free, 0
        else:
            reserved, internal = map(sum, zip((0, 0), *_tails(live, size), strict=True))
            used = len(self._refs) * size - reserved - internal
            cached = len(self._cached) * size
            free = total - len(self._refs) * size - cached
        waiting = len(self.live) - len(live)
        return Use(
            tick, seconds, total, used, reserved, internal, external, cached, free, len(live), waiting, rounding
        )  # fmt: skip

    def _on_engine(self, event: ev.Engine) -> None:
        self.block_size, self.num_blocks = event.block_size, event.num_blocks
        self.contiguous = event.layout == "contiguous"
        if event.rebuilt:
            self.running, self._refs, self._cached = {}, {}, set()
            for held in self.live.values():
                held.drop()

    def _on_start(self, event: ev.Start) -> None:
        self._refused = False

    def _on_wait(self, event: ev.Wait) -> None:
        self._refused = event.reason in ("memory", "hole")

    def _on_arrive(self, event: ev.Arrive) -> None:
        self.live[event.request] = _Held(event.prompt_tokens + event.max_tokens - 1)

    def _on_fork(self, event: ev.Fork) -> None:
        final = event.prompt_tokens + event.max_tokens - 1
        self.live[event.request] = _Held(final, event.computed, dict(enumerate(event.blocks)))
        self.running[event.request] = None
        for block in event.blocks:
            self._refs[block] += 1

    def _on_hit(self, event: ev.Hit) -> None:
        self._cached.discard(event.block)
        self._refs[event.block] = event.ref
        self.live[event.request].table[event.index] = event.block

    def _on_take(self, event: ev.Take) -> None:
        self._refs[event.block] = 1
        self.live[event.request].table[event.index] = event.block

    def _on_copy(self, event: ev.Copy) -> None:
        self._refs[event.source] -= 1
        if not self._refs[event.source]:  # it was published, else nobody would have copied it
            del self._refs[event.source]
            self._cached.add(event.source)
        self._refs[event.block] = 1
        self.live[event.request].table[event.index] = event.block

    def _on_reserve(self, event: ev.Reserve) -> None:
        self.live[event.request].extent = (event.blocks, event.reserved)

    def _on_evict(self, event: ev.Evict) -> None:
        self._cached.discard(event.block)

    def _on_reset(self, event: ev.Reset) -> None:
        self._cached.difference_update(event.blocks)

    def _on_publish(self, event: ev.Publish) -> None:
        if event.block not in self._refs:  # only in the opening of a late listener
            self._cached.add(event.block)

    def _on_release(self, event: ev.Release) -> None:
        if event.ref:
            self._refs[event.block] = event.ref
            return
        self._refs.pop(event.block, None)  # extents are not counted here
        if event.cached:
            self._cached.add(event.block)

    def _on_admit(self, event: ev.Admit) -> None:
        self.live[event.request].computed = event.cached
        self.running[event.request] = None

    def _on_run(self, event: ev.Run) -> None:
        self.live[event.request].computed = event.start + event.count

    def _on_preempt(self, event: ev.Preempt) -> None:
        self.live[event.request].drop()
        del self.running[event.request]

    def _on_finish(self, event: ev.Finish) -> None:
        del self.live[event.request]
        self.running.pop(event.request, None)


def _tails(live: Iterable[_Held], size: int) -> Iterable[tuple[int, int]]:
    """(reserved, internal) slots of every paged block that is not full; forks may share one, so each counts once."""
    empty: dict[int, tuple[int, int]] = {}
    for held in live:
        for index in range(held.computed // size, len(held.table)):
            begin, end, block = index * size, (index + 1) * size, held.table[index]
            filled = max(begin, held.computed)
            filled_in_the_end = max(filled, min(end, held.final))
            fate = (filled_in_the_end - filled, end - filled_in_the_end)
            empty[block] = min(empty.get(block, fate), fate, key=sum)
    return empty.values()

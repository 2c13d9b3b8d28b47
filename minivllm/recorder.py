"""Time travel: every event of every tick kept, written to JSONL, read back, and replayed to a snapshot of any tick."""

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from minivllm import events as ev
from minivllm.snapshot import BlockView, RequestView, Snapshot

MAX_FINISHED = 64


class Recorder:
    """A bus listener that groups events by tick. What happens between two ticks belongs to the next one."""

    def __init__(self, bus: ev.Bus | None = None, opening: Iterable[ev.Event] = ()) -> None:
        self.ticks: list[list[ev.Event]] = [list(opening)]
        self.detach = bus.subscribe(self) if bus else lambda: None

    def __call__(self, event: ev.Event) -> None:
        """Note one event; the bus calls this."""
        self.ticks[-1].append(event)
        if isinstance(event, ev.End):
            self.ticks.append([])

    @property
    def last_tick(self) -> int:
        """The number of complete ticks recorded."""
        return len(self.ticks) - 1

    def events_of(self, tick: int) -> list[ev.Event]:
        """Events of the `tick`-th recorded tick, from 1; `last_tick + 1` gives those since then."""
        if not isinstance(tick, int) or not 1 <= tick <= len(self.ticks):
            raise ValueError(f"tick {tick!r} was not recorded; recorded: 1 to {self.last_tick}")
        return self.ticks[tick - 1]

    def at(self, tick: int) -> Snapshot:
        """The engine as it was after the `tick`-th recorded tick, replayed from events alone; 0 is the beginning."""
        if not isinstance(tick, int) or not 0 <= tick <= self.last_tick:
            raise ValueError(f"tick {tick!r} was not recorded; recorded: 0 to {self.last_tick}")
        state = Replay()
        for event in self.ticks[0] if tick == 0 else (e for events in self.ticks[:tick] for e in events):
            if tick == 0 and isinstance(event, ev.Start):
                break
            try:
                state.apply(event)
            except (LookupError, StopIteration, TypeError, ValueError):
                raise ValueError(f"{event} does not fit what came before it: events are missing") from None
        return state.snapshot()

    def save(self, path: str | Path) -> None:
        """Write one event per line as JSON."""
        lines = (json.dumps(e.to_dict(), separators=(",", ":")) for events in self.ticks for e in events)
        Path(path).write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Recorder":
        """Read a file of `save`. Raises `ValueError` naming the line that is wrong."""
        recorder = cls()
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
            try:
                recorder(ev.from_dict(json.loads(line)))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
        return recorder


@dataclass
class _Seen:
    """A request as far as its events tell."""

    id: str
    prompt_tokens: int
    max_tokens: int
    tokens: int
    status: str = "waiting"
    computed: int = 0
    cached: int = 0
    table: dict[int, int] = field(default_factory=dict)
    reserved: int = 0
    preemptions: int = 0
    finish_reason: str | None = None


class Replay:
    """Applies events one by one to an empty engine; `snapshot()` shows what came of it."""

    def __init__(self) -> None:
        self.engine = ev.Engine(1, 0)
        self.tick = 0
        self.ref: list[int] = []
        self.hash: dict[int, str] = {}
        self.free: tuple[int, ...] = ()
        self.requests: dict[str, _Seen] = {}
        self.running: list[str] = []
        self.waiting: list[str] = []
        self.done: deque[str] = deque()

    def apply(self, event: ev.Event) -> None:
        """Let one event happen; `events.py` says what each means. Kinds that change no state are passed over."""
        handler = getattr(self, f"_on_{event.kind}", None)
        if handler:
            handler(event)

    def snapshot(self) -> Snapshot:
        """The state so far, in the form of `Engine.snapshot()`."""
        size = self.engine.block_size
        owners: list[list[str]] = [[] for _ in self.ref]
        filled = [0] * len(self.ref)
        live = [*self.running, *self.waiting]
        for name in live:
            seen = self.requests[name]
            for index, block in sorted(seen.table.items()):
                owners[block].append(name)
                filled[block] = max(filled[block], min(size, max(0, seen.computed - index * size)))
        blocks = tuple(
            BlockView(b, ref, self.hash.get(b), tuple(owners[b]), filled[b] if ref else size if b in self.hash else 0)
            for b, ref in enumerate(self.ref)
        )
        views = tuple(_view(self.requests[name]) for name in [*live, *self.done])
        return Snapshot(
            self.tick, size, len(self.ref), self.engine.layout, blocks, self.free, views, tuple(self.running),
            tuple(self.waiting),
        )  # fmt: skip

    def _on_engine(self, event: ev.Engine) -> None:
        self.engine = event
        if not event.rebuilt:
            return
        for name in self.running:
            seen = self.requests[name]
            seen.status, seen.computed, seen.table, seen.reserved = "waiting", 0, {}, 0
        self.waiting, self.running = [*self.running, *self.waiting], []
        if not event.changed:  # a history opens here
            self.requests, self.waiting, self.done = {}, [], deque()
        self.ref, self.hash = [0] * event.num_blocks, {}
        self.free = tuple(range(event.num_blocks)) if event.num_blocks <= 1024 else ()

    def _on_start(self, event: ev.Start) -> None:
        self.tick = event.tick

    def _on_end(self, event: ev.End) -> None:
        self.tick, self.free = event.tick, event.free

    def _on_arrive(self, event: ev.Arrive) -> None:
        if event.request in self.done:
            self.done.remove(event.request)
        seen = _Seen(event.request, event.prompt_tokens, event.max_tokens, event.prompt_tokens + event.generated)
        seen.cached, seen.preemptions = event.cached, event.preemptions
        self.requests[event.request] = seen
        self.waiting.append(event.request)

    def _on_limit(self, event: ev.Limit) -> None:
        self.requests[event.request].max_tokens = event.max_tokens

    def _on_hit(self, event: ev.Hit) -> None:
        self.ref[event.block] = event.ref
        self.requests[event.request].table[event.index] = event.block

    def _on_take(self, event: ev.Take) -> None:
        self.ref[event.block] = 1
        self.requests[event.request].table[event.index] = event.block

    def _on_copy(self, event: ev.Copy) -> None:
        self.ref[event.source] -= 1
        self.ref[event.block] = 1
        self.requests[event.request].table[event.index] = event.block

    def _on_reserve(self, event: ev.Reserve) -> None:
        seen = self.requests[event.request]
        seen.table = {i: event.block + i for i in range(event.reserved)}
        seen.reserved = event.blocks
        for block in seen.table.values():
            self.ref[block] = 1

    def _on_evict(self, event: ev.Evict) -> None:
        self.hash.pop(event.block, None)

    def _on_reset(self, event: ev.Reset) -> None:
        for block in event.blocks:
            self.hash.pop(block, None)

    def _on_admit(self, event: ev.Admit) -> None:
        seen = self.requests[event.request]
        seen.status, seen.computed = "running", event.cached
        seen.cached = seen.cached if event.resumed else event.cached
        self.waiting.remove(event.request)
        self.running.append(event.request)

    def _on_fork(self, event: ev.Fork) -> None:
        if event.request in self.done:
            self.done.remove(event.request)
        seen = _Seen(event.request, event.prompt_tokens, event.max_tokens, event.tokens, "running")
        seen.computed, seen.cached = event.computed, min(event.computed, event.prompt_tokens)
        seen.table = dict(enumerate(event.blocks))
        for block in event.blocks:
            self.ref[block] += 1
        self.requests[event.request] = seen
        self.running.append(event.request)

    def _on_preempt(self, event: ev.Preempt) -> None:
        seen = self.requests[event.request]
        seen.status, seen.computed, seen.preemptions = "waiting", 0, seen.preemptions + 1
        self.running.remove(event.request)
        self.waiting.insert(0, event.request)

    def _on_run(self, event: ev.Run) -> None:
        self.requests[event.request].computed = event.start + event.count

    def _on_token(self, event: ev.Token) -> None:
        self.requests[event.request].tokens += 1

    def _on_publish(self, event: ev.Publish) -> None:
        self.hash[event.block] = event.hash

    def _on_release(self, event: ev.Release) -> None:
        self.ref[event.block] = event.ref
        seen = self.requests[event.request]
        del seen.table[next(i for i in reversed(seen.table) if seen.table[i] == event.block)]  # tails go first
        seen.reserved = 0

    def _on_finish(self, event: ev.Finish) -> None:
        seen = self.requests[event.request]
        seen.status, seen.finish_reason = "finished", event.reason
        queue = self.running if event.request in self.running else self.waiting
        queue.remove(event.request)
        self.done.append(event.request)
        while len(self.done) > MAX_FINISHED:
            del self.requests[self.done.popleft()]


def _view(seen: _Seen) -> RequestView:
    table = tuple(block for _, block in sorted(seen.table.items()))
    return RequestView(
        seen.id, seen.status, seen.prompt_tokens, seen.tokens, seen.computed, seen.cached, seen.max_tokens, table,
        seen.reserved, seen.preemptions, seen.finish_reason,
    )  # fmt: skip

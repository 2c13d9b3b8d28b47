"""The free queue: which block is taken next, which are out of reach because somebody holds them, and what eviction costs.

The engine view's twin for chapter 07: the same recording, playback and live edge. Python adds to every tick what the
events alone do not show: the queue in its real order, and whose content each of its blocks still keeps.
"""

from typing import Any

import traitlets

from minivllm import events as ev
from minivllm.assembly import EvictionFactory
from minivllm.core.eviction import BY_NAME
from minivllm.core.kv_manager import KVManager
from minivllm.engine import Engine
from minivllm.viz import bundle, static
from minivllm.viz.engine_view import EngineView
from minivllm.viz.queue_card import as_svg, as_text
from minivllm.viz.queue_track import QueueTrack
from minivllm.viz.remains import Remains
from minivllm.viz.track import Track, recording

OWN = "yours"


class QueueView(EngineView):
    """Blocks in use, the free queue in order, the hash map, and what is left of a prompt. `show()` as in `EngineView`."""

    _esm = bundle.module("queue_view")
    _css = bundle.css("base", "engine_view", "queue_view")

    order = traitlets.Unicode().tag(sync=True)
    orders = traitlets.List(traitlets.Unicode()).tag(sync=True)
    track: QueueTrack

    def __init__(self, engine: Engine, title: str | None = None) -> None:
        if engine.config.kv_layout != "paged":
            raise ValueError(f"kv_layout is {engine.config.kv_layout!r}; only 'paged' has a free queue")
        self._own: EvictionFactory | None = None
        super().__init__(engine, title)
        self._tell_order()

    def __repr__(self) -> str:
        return f"QueueView(engine {self.engine.number}, tick {self.tick} of {self.edge})"

    @property
    def queue(self) -> tuple[int, ...]:
        """The blocks that can be taken, the next one first, after the tick that is shown."""
        return self.track.queue(self.track.index(self.tick))

    @property
    def in_use(self) -> dict[int, int]:
        """The blocks that cannot be taken, with their reference counts."""
        return {block.id: block.ref for block in self.snapshot.blocks if block.ref}

    def left_of(self, request_id: str) -> tuple[int, int]:
        """How many full blocks of a request could be hit after the tick that is shown, and how many it had.

        A prefix is hit from its start, so what lies behind the first missing block does not count. Raises `ValueError`
        for a request that was not here.
        """
        left = self._remains().left(request_id)
        return left.hit, len(left.blocks)

    def change(self, name: str, value: Any) -> None:
        """Change the eviction order at the live edge: `change("eviction", "fifo")`. The pool starts over, empty.

        Raises `ValueError` for another name or order; `"yours"` is the class that the engine was given.
        """
        if name != "eviction":
            raise ValueError(f"{name!r} cannot be changed here; it can be eviction")
        if value not in self.orders:
            raise ValueError(f"eviction is {value!r}; allowed: {', '.join(self.orders)}")
        self.tick = self.edge
        self.engine.reconfigure(eviction=self._own if value == OWN else value)

    def close(self) -> None:
        """Stop following the engine; nothing to do for a view that was refused."""
        if hasattr(self, "track"):
            super().close()

    def static(self) -> dict[str, str]:
        """The queue after the tick that is shown: `text/plain` and `text/html`."""
        lost = [e.hash for e in self.track.events(self.tick) if isinstance(e, ev.Evict)]
        parts = self.snapshot, self.queue, self._remains()
        plain = as_text(*parts, lost, f"Tick {self.tick}. {self.sentence}")
        drawn = as_svg(*parts, self.sentence, self.track.colours.of, self.title or self.trace["engine"])
        return {"text/plain": plain, "text/html": static.image(drawn, plain.replace("\n", "; "))}

    def _remains(self) -> Remains:
        return (
            self.track.remains
            if self.tick == self.edge
            else self.track.remains_at(self.track.index(self.tick), self._known)
        )

    def _follow_engine(self) -> Track:
        self._known = _chains(self.engine)
        return QueueTrack(recording(self.engine), self._read, Remains(self._known), self._live_queue)

    def _live_queue(self) -> tuple[int, ...]:
        cache = self.engine.scheduler.cache
        return tuple(cache.pool) if isinstance(cache, KVManager) else ()

    def _on_event(self, event: ev.Event) -> None:
        super()._on_event(event)
        if isinstance(event, ev.Engine):
            self._tell_order()

    def _tell_order(self) -> None:
        """Which eviction order is in force, and which can be chosen: `yours` once the engine was given one."""
        given = self.engine._eviction
        named = next((name for name, order in BY_NAME.items() if given is order), self.engine.config.eviction)
        if given is not None and given not in BY_NAME.values():
            self._own, named = given, OWN
        self.orders = [*BY_NAME, *([OWN] if self._own else [])]
        self.order = named


def _chains(engine: Engine) -> dict[str, list[str]]:
    """The hashes of the full blocks of every request that is there already, as far as they were published."""
    cache = engine.scheduler.cache
    here = set(cache.index.blocks) if isinstance(cache, KVManager) else set()
    chains = {
        request.id: request.hashes[: request.num_published]
        for request in [*engine.scheduler.requests.values(), *engine._finished.values()]
    }
    return {name: [digest.hex() for digest in chain] for name, chain in chains.items() if here.intersection(chain)}

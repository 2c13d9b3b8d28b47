"""The free queue: which block is taken next, which are out of reach because somebody holds them, and what eviction costs.

The engine view's twin for chapter 07: the same recording, playback and live edge. Python adds to every tick what the
events alone do not show: the queue in its real order, and whose content each of its blocks still keeps.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import traitlets

from minivllm import events as ev
from minivllm.assembly import EvictionFactory
from minivllm.core.eviction import BY_NAME
from minivllm.core.kv_manager import KVManager
from minivllm.engine import Engine
from minivllm.snapshot import Snapshot
from minivllm.viz import bundle, static
from minivllm.viz.engine_view import EngineView
from minivllm.viz.palette import LIGHT
from minivllm.viz.remains import QueueTrack, Remains
from minivllm.viz.svg import document, glyph, rect, text, wrap
from minivllm.viz.track import Track, recording

OWN = "yours"
DRAWN = 27
"""Blocks per row of the static card."""


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


def as_text(snapshot: Snapshot, queue: tuple[int, ...], remains: Remains, lost: list[str], say: str) -> str:
    """The queue in characters, one row per part of the picture; long rows are cut and counted."""

    def cut(items: list[str], most: int = 24) -> str:
        return " ".join(items[:most]) + (f" and {len(items) - most:,} more" if len(items) > most else "") or "none"

    used = [f"{b.id}:{'+'.join(b.owners)}" + (f"(ref {b.ref})" if b.ref > 1 else "") for b in snapshot.blocks if b.ref]
    rows = [
        ("In use", len(used), cut(used)),
        ("Free queue, front first", len(queue), cut([f"{block}{_content(block, remains)}" for block in queue])),
        ("Hash to block", len(remains.hash), "gone in this tick: " + cut([f"#{digest[:4]}" for digest in lost])),
    ]
    lines = [say, *(f"{name} ({n:,}): {told}" for name, n, told in rows)]
    if left := remains.latest():
        kept = cut([str(block) if block is not None else "!" for block in left.blocks])
        lines.append(f"Left of {left.request}, head first: {kept}; {left.hit} of {len(left.blocks)} blocks can be hit")
    return "\n".join(lines)


class _Cell(NamedTuple):
    """One block of the card: the word in it and the one below, whose colour it has, its outline, whether it is lost."""

    word: str
    below: str
    owner: str = ""
    outline: Mapping[str, str] = MappingProxyType({})
    lost: bool = False


def as_svg(
    snapshot: Snapshot, queue: tuple[int, ...], remains: Remains, say: str, colours: Mapping[str, int], title: str
) -> str:
    """The queue as a light card: blocks in use, the queue from front to back, and what is left of one request."""
    used = [b for b in snapshot.blocks if b.ref]
    held = [
        _Cell(str(b.id), " ".join(b.owners) if b.ref < 4 else f"ref {b.ref}", b.owners[0] if b.ref == 1 else "")
        for b in used
    ]
    line = []
    for block in queue:
        outline = static.DASHED if block in remains.hash else static.DOTTED
        line.append(_Cell(str(block), _content(block, remains)[1:].replace("=", " ") or "no hash", "", outline))
    rows = [
        ("In use", f"{len(used):,} blocks: not in the queue, so never evicted", held),
        ("Free queue", f"{len(queue):,} blocks, front first: taken from the left", line),
    ]
    if left := remains.latest():
        chain = [
            _Cell(
                str(b),
                f"{left.request}{at}",
                left.request,
                {} if b is None or at < left.hit else static.DASHED,
                b is None,
            )
            for at, b in enumerate(left.blocks)
        ]
        rows.append((f"What is left of {left.request}", f"{left.hit} of {len(chain)} blocks can be hit", chain))
    told = wrap(say, 84)
    out = [text(24, 40, f"Tick {snapshot.tick}", 22, weight=650), text(696, 40, title, 12, LIGHT.ink3, anchor="end")]
    out += [text(24, 66 + 22 * n, words, 15) for n, words in enumerate(told)]
    y = 74.0 + 22 * len(told)
    for name, note, cells in rows:
        note += f"; {len(cells) - DRAWN:,} more are not drawn" if len(cells) > DRAWN else ""
        out += [text(24, y + 14, name, 13, weight=600), text(696, y + 14, note, 12, LIGHT.ink3, anchor="end")]
        for at, cell in enumerate(cells[:DRAWN]):
            out.append(_drawn(cell, 24 + at % 9 * 75, y + 24 + at // 9 * 46, colours))
        y += 36 + 46 * -(-min(DRAWN, len(cells)) // 9)
    return document(static.WIDTH, y + 4, out)


def _drawn(cell: _Cell, x: float, y: float, colours: Mapping[str, int]) -> str:
    colour = LIGHT.requests[colours[cell.owner]] if cell.owner in colours else static.NEUTRAL
    fill, edge = (LIGHT.bg, LIGHT.line) if cell.outline else (colour.tint, colour.edge)
    below = text(x + 33, y + 31, cell.below[:11], 10, LIGHT.ink2, anchor="middle")
    if cell.lost:
        return (
            rect(x, y, 66, 38, LIGHT.loss_tint, LIGHT.loss, rx=6)
            + glyph("evict", x + 33, y + 13, 9, LIGHT.loss)
            + below
        )
    box = rect(x, y, 66, 38, fill, edge, rx=6, **cell.outline)
    return box + text(x + 33, y + 16, cell.word, 12, weight=600, anchor="middle", mono=True) + below


def _content(block: int, remains: Remains) -> str:
    """`#b89d=Z0`: the hash a block keeps, and whose content it is, as which logical block."""
    digest, home = remains.hash.get(block), remains.home.get(block)
    return "" if digest is None else f"#{digest[:4]}" + (f"={home[0]}{home[1]}" if home else "")

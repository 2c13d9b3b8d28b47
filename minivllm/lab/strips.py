"""The same requests in the same memory under four rules of reservation: where every slot is, tick by tick.

Four simulated engines, one scheduler: Max, Pow2 and Oracle reserve an extent each (first fit, slot by slot), Paged takes a
block when it is needed. The names and the words for the waste are those of Kwon et al. 2023, Figure 2.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from minivllm import events as ev
from minivllm.config import EngineConfig
from minivllm.engine import Engine
from minivllm.intake import letters
from minivllm.lab.device import BlankRunner
from minivllm.request import SamplingParams
from minivllm.snapshot import RequestView, Snapshot

KINDS = ("used", "later", "never", "hole", "free")
LAYOUTS = ("Max", "Pow2", "Oracle", "Paged")
SLOTS = 560
Asked = tuple[int, int]
"""Tokens of a prompt, and of its answer."""


class Part(NamedTuple):
    """`slots` slots from `start` on: what they are, and whose."""

    start: int
    slots: int
    kind: str
    who: str = ""


class Refusal(NamedTuple):
    """The next in line could not start: it asks for `need` slots; `largest` in one piece, `free` in all; it would use `real`."""

    who: str
    need: int
    largest: int
    free: int
    real: int


@dataclass(frozen=True)
class Frame:
    """One layout after one tick. `parts` tile the memory in order of address."""

    parts: tuple[Part, ...]
    refused: Refusal | None
    running: tuple[str, ...]
    waiting: int
    done: tuple[str, ...]

    def slots(self, kind: str) -> int:
        """Slots of one kind."""
        return sum(part.slots for part in self.parts if part.kind == kind)


def made_up(count: int = 26, longest: int = 128, seed: int = 3) -> list[Asked]:
    """Requests of a small chat server, prompt and answer in tokens; none longer than `longest`."""
    rng = random.Random(seed)
    asked = [(rng.randint(12, 56), rng.randint(12, 64)) for _ in range(count)]
    return [(prompt, min(output, longest - prompt)) for prompt, output in asked]


def config_of(layout: str, slots: int = SLOTS, longest: int = 128, block_size: int = 16) -> EngineConfig:
    """The engine of one layout. Raises `ValueError` for a layout that is not in `LAYOUTS`."""
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}; allowed: {', '.join(LAYOUTS)}")
    if layout == "Paged":
        return EngineConfig(
            block_size=block_size, num_blocks=slots // block_size, max_model_len=longest, enable_prefix_caching=False
        )
    return EngineConfig(
        block_size=1, num_blocks=slots, max_model_len=longest, kv_layout="contiguous", reservation=layout.lower(),
        allocator="first-fit",
    )  # fmt: skip


def film(layout: str, asked: Sequence[Asked], ticks: int = 40, **options: int) -> list[Frame]:
    """One frame per tick, 0 before the first, while the requests arrive all at once and run in their order."""
    engine = Engine(config_of(layout, **options), runner=BlankRunner())
    names = dict(zip(letters(), asked, strict=False))
    waits: list[ev.Wait] = []
    engine.bus.subscribe(lambda event: waits.append(event) if isinstance(event, ev.Wait) else None)
    for name, (prompt, output) in names.items():
        engine.add([1] * prompt, SamplingParams(max_tokens=output, ignore_eos=True), request_id=name)
    frames = [frame(engine.snapshot(), None, names)]
    for _ in range(ticks):
        waits.clear()
        engine.step()
        frames.append(frame(engine.snapshot(), waits[-1] if waits else None, names))
    return frames


def frame(shown: Snapshot, wait: ev.Wait | None, asked: dict[str, Asked]) -> Frame:
    """A snapshot as parts. Free memory is a hole while the next in line is refused: it cannot use it."""
    size, total = shown.block_size, shown.num_blocks * shown.block_size
    live = [shown.request(name) for name in shown.running]
    contiguous = shown.layout == "contiguous"
    parts = _filled(sorted(part for request in live for part in _extent(request, size, shown.layout)), total)
    refused = _refusal(wait, parts, size, asked) if wait is not None and wait.reason in ("memory", "hole") else None
    if refused and (refused.largest if contiguous else refused.free) >= refused.need:
        refused = None  # somebody left in this very tick: it will start in the next
    if refused and contiguous:
        parts = [part._replace(kind="hole") if part.kind == "free" else part for part in parts]
    done = tuple(view.id for view in shown.requests if view.status == "finished")
    return Frame(tuple(parts), refused, shown.running, len(shown.waiting), done)


def _extent(request: RequestView, size: int, layout: str) -> list[Part]:
    final = request.prompt_tokens + request.max_tokens - 1  # the last token is never fed back
    if layout == "contiguous":
        start, slots = request.table[0] * size, request.reserved * size
        return _pieces(request.id, start, slots, request.computed, final)
    found = []
    for index, block in enumerate(request.table):
        here = index * size
        found += _pieces(request.id, block * size, size, request.computed - here, final - here)
    return found


def _pieces(who: str, start: int, slots: int, computed: int, final: int) -> list[Part]:
    """An extent cut in three: holds K/V now, will, never will."""
    a, b = max(0, min(slots, computed)), max(0, min(slots, final))
    cuts = [("used", 0, a), ("later", a, max(a, b)), ("never", max(a, b), slots)]
    return [Part(start + low, high - low, kind, who) for kind, low, high in cuts if high > low]


def _filled(parts: list[Part], total: int) -> list[Part]:
    tiled: list[Part] = []
    at = 0
    for part in [*parts, Part(total, 0, "end")]:
        if part.start > at:
            tiled.append(Part(at, part.start - at, "free"))
        if part.slots:
            tiled.append(part)
        at = part.start + part.slots
    return tiled


def _refusal(wait: ev.Wait, parts: list[Part], size: int, asked: dict[str, Asked]) -> Refusal:
    gaps = [part.slots for part in parts if part.kind == "free"]
    prompt, output = asked[wait.request]
    return Refusal(wait.request, wait.need * size, max(gaps, default=0), sum(gaps), prompt + output - 1)

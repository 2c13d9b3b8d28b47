"""Four ways to share the same memory among the same requests, tick by tick: three that reserve, and paging.

Every strip is one pool drawn to scale. A refused request lies under the hole that it does not fit.
(Kwon et al. 2023, §6.1: Orca Max, Pow2 and Oracle against paging.)
"""

from collections.abc import Sequence
from typing import Any

import traitlets

from minivllm.config import EngineConfig
from minivllm.engine import Engine
from minivllm.narrate import count, listing
from minivllm.recorder import Recorder
from minivllm.request import SamplingParams
from minivllm.viz import bundle, static, strip_card
from minivllm.viz.memory_layout import KINDS, Refusal, percents, pieces, refusal, totals
from minivllm.viz.playable import Playable

RULES = {
    "Max": "{longest} slots for everyone, the longest allowed",
    "Pow2": "prompt, plus output rounded up to a power of two",
    "Oracle": "exactly what the request will use",
    "Paged": "{slots} at a time, anywhere",
}
NAMES = tuple(RULES)


class MemoryStrip(Playable):
    """Runs `requests`, pairs of (prompt tokens, output tokens), in one simulated engine per way of sharing.

    `slots`: tokens of K/V the memory holds. `longest`: what Max reserves. `block_size`: of the paged pool.
    `engines[name]` are real engines: look at their snapshots, or step them on.
    """

    _esm = bundle.module("memory_strip")
    _css = bundle.css("base", "memory_strip")

    trace = traitlets.Dict().tag(sync=True)
    predictions = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        requests: Sequence[tuple[int, int]],
        *,
        slots: int = 560,
        longest: int = 128,
        block_size: int = 16,
        allocator: str = "first-fit",
        title: str = "",
    ) -> None:
        self.requests, self.slots, self.allocator = list(requests), slots, allocator
        self._build(longest, block_size)
        super().__init__(title=title, trace=self._trace())

    def __repr__(self) -> str:
        return f"MemoryStrip({len(self.requests)} requests, {self.slots} slots, tick {self.tick} of {self.edge})"

    # -- what it shows -------------------------------------------------------------------------------------------

    @property
    def edge(self) -> int:
        """The last tick that has run."""
        return len(self.frames) - 1

    @property
    def has_more(self) -> bool:
        """Whether any of the engines still has work."""
        return any(engine.has_unfinished for engine in self.engines.values())

    @property
    def sentence(self) -> str:
        """What the picture shows, in words."""
        return "".join(part if isinstance(part, str) else part["b"] for part in self.frames[self.tick]["say"])

    def shares(self, name: str) -> dict[str, int]:
        """Percent of the slots of each kind in the tick shown; they add up to 100."""
        row = self.frames[self.tick]["rows"][NAMES.index(name)]
        return dict(zip(KINDS, percents(row["totals"].values()), strict=True))

    def predict(self, name: str, percent: float, tick: int | None = None) -> None:
        """Mark a prediction of the used share, and say beside it at `tick` (None: at every one) by how much it missed.

        Raises `ValueError` for a name there is not.
        """
        if name not in NAMES:
            raise ValueError(f"no strip is called {name!r}; there are {', '.join(NAMES)}")
        self.predictions = self.predictions | {name: {"percent": percent, "tick": tick}}

    # -- what it does --------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """One tick of every engine that has work; False if none has."""
        if not self.has_more:
            return False
        for engine in self.engines.values():
            if engine.has_unfinished:
                engine.step()
        self._take_frame()
        self.send({"type": "frame", "at": self.edge, "frame": self.frames[-1]})
        return True

    def change(self, name: str, value: int) -> None:
        """Change `longest` or `block_size` and begin again, up to the tick that was shown."""
        if name not in ("longest", "block_size"):
            raise ValueError(f"{name!r} cannot be changed here; it can be longest, block_size")
        at = self.tick
        self._build(**{"longest": self.longest, "block_size": self.block_size, name: int(value)})
        self.trace, self.playhead = self._trace(), 0
        self.goto(at)

    def dispatch(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answer a message: those of every player, and the two settings."""
        match message:
            case {"type": "set", "name": name, "value": value}:
                self.change(name, value)
                return {}
            case {"type": "hello", "have": have}:
                for at in range(int(have), len(self.frames)):
                    self.send({"type": "frame", "at": at, "frame": self.frames[at]})
                self.send({"type": "sync"})
                return {}
        return super().dispatch(message)

    def static(self) -> dict[str, str]:
        """The picture as it is now, for readers without a kernel: `text/plain` and `text/html`."""
        rows = [(name, self.shares(name), row) for name, row in zip(NAMES, self.frames[self.tick]["rows"], strict=True)]
        plain = strip_card.table(self.tick, self.sentence, rows, self.slots)
        card = strip_card.card(self.tick, self.sentence, rows, self.slots)
        return {"text/plain": plain, "text/html": static.image(card, f"Tick {self.tick}. {self.sentence}")}

    # -- how it is made ------------------------------------------------------------------------------------------

    def _build(self, longest: int, block_size: int) -> None:
        engines = {name: self._engine(name, longest, block_size) for name in NAMES}
        for engine in engines.values():
            for prompt, output in self.requests:
                params = SamplingParams(max_tokens=output, temperature=0.0, ignore_eos=True)
                engine.add(list(range(prompt)), params)
        self.engines, self.longest, self.block_size = engines, longest, block_size
        self._recorders: dict[str, Recorder] = {name: engine.record() for name, engine in engines.items()}
        self.frames: list[dict[str, Any]] = []
        self._take_frame()

    def _engine(self, name: str, longest: int, block_size: int) -> Engine:
        common = EngineConfig(max_model_len=longest, max_num_batched_tokens=256, enable_prefix_caching=False)
        if name == "Paged":
            return Engine(common.replace(block_size=block_size, num_blocks=self.slots // max(1, block_size)))
        reserve = {"kv_layout": "contiguous", "reservation": name.lower(), "allocator": self.allocator}
        return Engine(common.replace(block_size=1, num_blocks=self.slots, **reserve))

    def _trace(self) -> dict[str, Any]:
        words = {"longest": self.longest, "slots": count(self.block_size, "slot")}
        rows = [{"name": name, "rule": rule.format(**words)} for name, rule in RULES.items()]
        settings = {"slots": self.slots, "longest": self.longest, "block_size": self.block_size}
        return {"engine": "memory strips", "rows": rows, "frames": list(self.frames), **settings}

    def _take_frame(self) -> None:
        rows, refused = [], {}
        for name, engine in self.engines.items():
            shown, recorder = engine.snapshot(), self._recorders[name]
            told = recorder.events_of(recorder.last_tick) if recorder.last_tick else []
            turned = refusal(told, shown) if engine.has_unfinished else None
            found = pieces(shown, refused=turned is not None)
            refused[name] = turned
            rows.append(
                {
                    "pieces": [list(p) for p in found],
                    "totals": totals(found),
                    "running": list(shown.running),
                    "waiting": len(shown.waiting),
                    "done": len(self.requests) - len(shown.running) - len(shown.waiting),
                    "refused": vars(turned) if turned else None,
                    "ticks": engine.tick,
                }
            )
        self.frames.append({"rows": rows, "say": self._say(refused)})

    def _say(self, refused: dict[str, Refusal | None]) -> list[Any]:
        """The sentence; names of strips are `{"b": name}`."""
        begin = f"Same {self.slots} slots, same {len(self.requests)} requests"
        if not self.has_more:
            ends: list[Any] = []
            for at, (name, engine) in enumerate(self.engines.items()):
                ends += [", " if at else ": ", {"b": name}, f" after {engine.tick} ticks"]
            return [f"{begin}, all done", *ends, "."]
        turned = [(name, r) for name, r in refused.items() if r and name != "Paged"]
        if not turned:
            return [f"{begin}, four ways to share them."]
        parts: list[Any] = [f"{begin}. "]
        for at, (name, r) in enumerate(turned):
            parts += [
                ", " if at else "",
                {"b": name},
                f" turns {r.who} away with {r.free}{'' if at else ' slots empty'}",
            ]
        return [*parts, ". ", *self._paged({r.who for _, r in turned})]

    def _paged(self, who: set[str]) -> list[Any]:
        """How those that others turn away fare in the paged pool."""
        shown = self.engines["Paged"].snapshot()
        runs = [r for r in shown.running if r in who]
        waits = [r for r in shown.waiting if r in who]
        done = sorted(who - set(runs) - set(waits))
        parts = [f"is already running {''.join(listing(runs))}"] if runs else []
        parts += [f"{''.join(listing(done))} {'is' if len(done) == 1 else 'are'} done"] if done else []
        if not parts:
            return [{"b": "Paged"}, f" has {count(len(shown.running), 'request')} running."]
        lead = [{"b": "Paged"}, " "] if runs else ["In ", {"b": "Paged"}, " "]
        return [*lead, "; ".join(parts), "."]

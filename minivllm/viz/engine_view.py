"""The engine as a live picture: the trace goes to the browser once, which steps and scrubs through it on its own.

Only the live edge needs Python: one more tick, or a change to the engine. Every request from the browser passes
`handle()`, which shows what failed instead of hiding it, so the next click works. All of it runs without a browser too.
"""

from typing import Any

import traitlets

from minivllm import events as ev
from minivllm.engine import Engine
from minivllm.request import SamplingParams
from minivllm.snapshot import Snapshot
from minivllm.viz import bundle, static
from minivllm.viz.lifetime import Lifetime
from minivllm.viz.playable import Playable
from minivllm.viz.track import Track, recording
from minivllm.viz.words import Words

LIVE_EDITS = ("block_size", "num_blocks", "policy", "enable_prefix_caching")


class EngineView(Playable):
    """A view of one engine. `show()` displays a static snapshot, then the live widget.

    `tick` is the playhead, `edge` the last tick that has run. Setting `tick` shows a recorded tick (clamped to what was
    recorded since the view was made); it never runs the engine.
    """

    _esm = bundle.module("engine_view")
    _css = bundle.css("base", "engine_view")

    trace = traitlets.Dict().tag(sync=True)

    def __init__(self, engine: Engine, title: str | None = None) -> None:
        self.engine = engine
        self.words = Words(engine.tokenizer, engine.runner.vocab_size)
        self.track = track = self._follow_engine()
        self._in_tick, self._follow = False, True
        name = f"engine {engine.number}, {'simulation' if engine.model is None else engine.model.name}"
        trace = {"engine": name, "offset": track.offset, "low": int(track.late)}
        trace |= {"ticks": track.told, "between": track.tail}
        super().__init__(title=title or "", playhead=track.edge, trace=trace)
        self._lifetime = Lifetime(self)
        self._unsubscribe = engine.bus.subscribe(self._on_event)

    def __repr__(self) -> str:
        return f"EngineView(engine {self.engine.number}, tick {self.tick} of {self.edge})"

    # -- what it shows -------------------------------------------------------------------------------------------

    @property
    def first(self) -> int:  # type: ignore[override]
        """The first tick that can be shown: 0, or where the recording began."""
        return self.track.first

    @property
    def edge(self) -> int:
        """The last tick that has run."""
        return self.track.edge

    @property
    def has_more(self) -> bool:
        """Whether a request still runs or waits."""
        return self.engine.has_unfinished

    @property
    def snapshot(self) -> Snapshot:
        """The engine as shown: replayed from the recording, at the live edge as it is now."""
        return self.engine.snapshot() if self.tick == self.edge else self.track.recorder.at(self.track.index(self.tick))

    @property
    def sentence(self) -> str:
        """What happened in the tick that is shown, as printed above the picture and read aloud."""
        return self.track.sentence(self.tick)

    # -- what it does --------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """One tick of the engine; False if there is nothing to do."""
        if self.engine.has_unfinished:
            self.engine.step()
            return True
        return False

    def add(self, prompt: str | list[int], max_tokens: int = 16) -> str:
        """A new request at the live edge; returns its id. Without a tokenizer each word of a text is one token."""
        self.tick = self.edge
        if isinstance(prompt, str) and self.engine.tokenizer is None:
            prompt = self.words.encode(prompt)
        return self.engine.add(prompt, SamplingParams(max_tokens=max_tokens, temperature=0.0))

    def abort(self, request_id: str) -> None:
        """End a request at the live edge."""
        self.tick = self.edge
        self.engine.abort(request_id)

    def change(self, name: str, value: Any) -> None:
        """Change a setting of the running engine at the live edge: one of `LIVE_EDITS`, else `ValueError`."""
        if name not in LIVE_EDITS:
            raise ValueError(f"{name!r} cannot be changed here; it can be {', '.join(LIVE_EDITS)}")
        self.tick = self.edge
        self.engine.reconfigure(**{name: value})

    def set_block_size(self, block_size: int) -> None:
        """Change the block size of the running engine; the pool keeps its size in tokens."""
        self.change("block_size", block_size)

    def close(self) -> None:
        """Stop following the engine."""
        self._unsubscribe()
        self.track.recorder.detach()
        super().close()

    # -- what the browser asks for -------------------------------------------------------------------------------

    def alive(self) -> bool:
        """False, and said so, when the engine was closed or replaced."""
        return not self._lifetime.over()

    def dispatch(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answer a message: those of every player, and the live edits."""
        match message:
            case {"type": "hello", "have": have}:
                self._sync(int(have))
            case {"type": "set", "name": name, "value": value}:
                self.change(name, value)
            case {"type": "add", "prompt": prompt, "max_tokens": max_tokens}:
                return {"request": self.add(prompt, int(max_tokens))}
            case {"type": "abort", "request": request_id}:
                self.abort(request_id)
            case _:
                return super().dispatch(message)
        return {"idle": not self.has_more}

    # -- what the browser is told --------------------------------------------------------------------------------

    def static(self) -> dict[str, str]:
        """The picture as it is now, for readers without a kernel: `text/plain` and `text/html`."""
        shown, say = self.snapshot, self.sentence
        evicted = {e.block for e in self.track.events(self.tick) if isinstance(e, ev.Evict)}
        title = self.title or self.trace["engine"]
        plain = static.ascii_map(shown, say, evicted)
        card = static.pool_card(shown, say, self.track.colours.of, evicted, title)
        return {"text/plain": plain, "text/html": static.image(card, " ".join(plain.split("\n")[:2]))}

    def _follow_engine(self) -> Track:
        """What is told of every tick; a view that needs more than the events say tells more."""
        return Track(recording(self.engine), self._read)

    def _on_event(self, event: ev.Event) -> None:
        """One event from the engine: complete ticks are sent as one message, what happens between them at once."""
        if isinstance(event, ev.Start):
            self._follow = self.tick == self.edge
            self._in_tick = True
        elif isinstance(event, ev.End):
            self._in_tick = False
            for tick in self.track.more():
                self.send({"type": "tick", **tick})
            if self._follow:
                self.tick = self.edge
        elif not self._in_tick:
            self.send({"type": "between", **self.track.between(event)})

    def recover(self) -> None:
        """After a step that failed midway: what was recorded of it counts as happened since the last tick."""
        self._in_tick = False
        self.track.retell()
        self._sync(len(self.track.told))

    def _sync(self, have: int) -> None:
        """What a newly drawn view lacks: the trait holds only the ticks of the beginning."""
        self.send({"type": "sync", "ticks": self.track.told[have:], "between": self.track.tail})

    def _read(self, request_id: str) -> list[str]:
        request = self.engine.scheduler.requests.get(request_id)
        return self.words.decode(request.tokens) if request else []

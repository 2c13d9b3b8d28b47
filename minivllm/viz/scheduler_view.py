"""The scheduler at work: who waits, who has a seat, who ran in which tick, and where each tick's token budget went.

The engine view's twin for chapter 05: the same recording, the same playback and live edge, another picture.
"""

from typing import Any

import traitlets

from minivllm.engine import Engine
from minivllm.viz import bundle, gantt, static
from minivllm.viz.engine_view import EngineView

SETTINGS = (
    "max_num_batched_tokens",
    "mix_prefill_decode",
    "enable_chunked_prefill",
    "max_num_seqs",
    "policy",
    "num_blocks",
)
"""What can be changed here while the engine runs."""


class SchedulerView(EngineView):
    """Queues, a Gantt row per request, tokens per tick, and the tick in words. `show()` as in `EngineView`."""

    _esm = bundle.module("scheduler_view")
    _css = bundle.css("base", "engine_view", "scheduler_view")

    settings = traitlets.Dict().tag(sync=True)

    def __init__(self, engine: Engine, title: str | None = None) -> None:
        super().__init__(engine, title)
        self._tell_settings()

    def __repr__(self) -> str:
        return f"SchedulerView(engine {self.engine.number}, tick {self.tick} of {self.edge})"

    def change(self, name: str, value: Any) -> None:
        """Change a setting of the running engine at the live edge: one of `SETTINGS`, else `ValueError`."""
        if name not in SETTINGS:
            raise ValueError(f"{name!r} cannot be changed here; it can be {', '.join(SETTINGS)}")
        self.tick = self.edge
        self.engine.reconfigure(**{name: value})
        self._tell_settings()

    @property
    def chart(self) -> gantt.Chart:
        """Who ran in which tick, as far as the playhead."""
        return gantt.chart(self.track.recorder.ticks[: self.track.index(self.tick)])

    def static(self) -> dict[str, str]:
        """The Gantt chart up to the tick that is shown: `text/plain` and `text/html`."""
        made, say = self.chart, f"Tick {self.tick}. {self.sentence}"
        budget = self.engine.config.max_num_batched_tokens
        plain = gantt.as_text(made, say)
        card = gantt.as_svg(made, say, self.track.colours.of, self.title or self.trace["engine"], budget)
        return {"text/plain": plain, "text/html": static.image(card, plain.replace("\n", "; "))}

    def _tell_settings(self) -> None:
        self.settings = {name: getattr(self.engine.config, name) for name in SETTINGS}

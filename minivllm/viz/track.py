"""A recorded trace as a browser wants it: per tick its events, its sentence, its log, and who has which colour."""

from collections.abc import Callable
from typing import Any

from minivllm import events as ev
from minivllm.engine import Engine
from minivllm.narrate import Narrator, Spans
from minivllm.recorder import Recorder
from minivllm.viz.palette import Colours
from minivllm.viz.tick_log import spans_to_json, tick_log

EMPTY: Spans = ["Nothing has run yet: press → to run one tick."]


def recording(engine: Engine) -> Recorder:
    """A recording from now on. What is there already becomes a tick of its own, so that it can be shown."""
    opening = engine.record()
    opening.detach()
    recorder = Recorder(engine.bus)
    for event in opening.ticks[0]:
        recorder(event)
    return recorder


class Track:
    """Follows a recorder tick by tick. Ticks are the engine's: a recording that began late starts at `first`.

    `read` gives the words of a request's prompt. `told`: one payload per complete tick; `tail`: one per event since.
    """

    def __init__(self, recorder: Recorder, read: Callable[[str], list[str]] = lambda _: []) -> None:
        self.recorder, self.read = recorder, read
        self.narrator, self.colours = Narrator(), Colours()
        self.told: list[dict[str, Any]] = []
        self.tail: list[dict[str, Any]] = []
        self._says: list[Spans] = []
        self.late = recorder.last_tick > 0
        self.offset = next(e.tick for e in recorder.ticks[0] if isinstance(e, ev.Start)) - 1 if self.late else 0
        self.more()
        self.retell()

    @property
    def first(self) -> int:
        """The first tick that can be shown; 0 is before the engine's first."""
        return self.offset + 1 if self.late else 0

    @property
    def edge(self) -> int:
        """The last complete tick."""
        return self.recorder.last_tick + self.offset

    def index(self, tick: int) -> int:
        """Where the recorder keeps a tick."""
        return tick - self.offset

    def sentence(self, tick: int) -> str:
        """What happened in a tick, and at the edge what has happened since."""
        at = self.index(tick)
        spans = self._says[at - 1] if at else ["Before the first tick."] if self.told else EMPTY
        since = [item["text"] for item in self.tail[-2:] if item["text"]] if tick == self.edge else []
        return " ".join(["".join(spans), *since])

    def events(self, tick: int) -> list[ev.Event]:
        """The events of a tick, without those that only open a late recording."""
        at = self.index(tick)
        return self.recorder.events_of(at) if at > (1 if self.late else 0) else []

    def more(self) -> list[dict[str, Any]]:
        """Payloads of the ticks that were completed since the last call."""
        fresh = [self._tick(at) for at in range(len(self.told) + 1, self.recorder.last_tick + 1)]
        self.told += fresh
        if fresh:
            self.tail = []
        return fresh

    def retell(self) -> None:
        """Bring `tail` up to what was recorded since the last complete tick."""
        for event in self.recorder.ticks[-1][len(self.tail) :]:
            self.between(event)

    def between(self, event: ev.Event) -> dict[str, Any]:
        """The payload of one event that happened between two ticks."""
        colours = self._colour([event])
        opening = isinstance(event, ev.Engine) and not event.changed
        spans = [] if opening else self.narrator.tell([event])
        item = {"event": event.to_dict(), "say": spans_to_json(spans), "text": "".join(spans)}
        self.tail.append(item | {"colours": colours, "words": self._words([event])})
        return self.tail[-1]

    def _tick(self, at: int) -> dict[str, Any]:
        events = self.recorder.events_of(at)
        homes = dict(self.narrator.home)
        colours = self._colour(events)
        spans = self.narrator.tell(events)
        opening = self.late and at == 1
        if opening:
            spans = [f"The recording begins here, after tick {self.offset + 1}."]
        self._says.append(spans)
        lines = [] if opening else tick_log(events, self.narrator.prompt, homes)
        return {
            "tick": at, "opening": opening, "events": [e.to_dict() for e in events], "say": spans_to_json(spans),
            "log": [line.to_list() for line in lines], "colours": colours, "words": self._words(events),
        }  # fmt: skip

    def _words(self, events: list[ev.Event]) -> dict[str, list[str]]:
        """The words of the prompts that arrive in these events."""
        return {e.request: self.read(e.request) for e in events if isinstance(e, ev.Arrive)}

    def _colour(self, events: list[ev.Event]) -> dict[str, int]:
        """The colours of those who came in these events."""
        came: dict[str, int] = {}
        for event in events:
            if isinstance(event, ev.Arrive | ev.Fork):
                came[event.request] = self.colours.arrive(event.request)
            elif isinstance(event, ev.Finish):
                self.colours.finish(event.request)
        return came

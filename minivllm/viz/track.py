"""A recorded trace as a browser wants it: per tick its events, its sentence, its log, and who has which colour."""

from typing import Any

from minivllm import events as ev
from minivllm.narrate import Narrator, Spans
from minivllm.recorder import Recorder
from minivllm.viz.palette import Colours
from minivllm.viz.tick_log import spans_to_json, tick_log


class Track:
    """Follows a recorder tick by tick. `say[i]` is the sentence after tick `i`; 0 is before the first tick."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.narrator = Narrator()
        self.colours = Colours()
        self.say: list[Spans] = [["Nothing has run yet: press → to run one tick."]]
        self.told: list[dict[str, Any]] = []  # one payload per complete tick
        self.tail: list[dict[str, Any]] = []  # one payload per event since then

    @property
    def edge(self) -> int:
        """The last complete tick."""
        return self.recorder.last_tick

    def more(self) -> list[dict[str, Any]]:
        """Payloads of the ticks that were completed since the last call."""
        fresh = [self._tick(n) for n in range(len(self.told) + 1, self.edge + 1)]
        self.told += fresh
        self.tail = []
        return fresh

    def since(self) -> list[ev.Event]:
        """Events since the last complete tick."""
        return list(self.recorder.ticks[-1])

    def between(self, event: ev.Event) -> dict[str, Any]:
        """The payload of one event that happened between two ticks."""
        self._colour(event)
        say = spans_to_json(self.narrator.tell([event]))
        self.tail.append({"event": event.to_dict(), "say": say, "colours": dict(self.colours.of)})
        return self.tail[-1]

    def _colour(self, event: ev.Event) -> None:
        if isinstance(event, ev.Arrive | ev.Fork):
            self.colours.arrive(event.request)
        elif isinstance(event, ev.Finish):
            self.colours.finish(event.request)

    def _tick(self, number: int) -> dict[str, Any]:
        events = self.recorder.events_of(number)
        homes = dict(self.narrator.home)
        for event in events:
            self._colour(event)
        spans = self.narrator.tell(events)
        self.say.append(spans)
        lines = tick_log(events, self.narrator.prompt, homes)
        label = next((e.tick for e in events if isinstance(e, ev.Start)), number)
        return {
            "tick": number, "label": label, "events": [e.to_dict() for e in events], "say": spans_to_json(spans),
            "log": [line.to_list() for line in lines], "colours": dict(self.colours.of),
        }  # fmt: skip

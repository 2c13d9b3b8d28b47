"""A track that also tells, after every tick, the free queue in its real order and what is left of one request."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minivllm import events as ev
from minivllm.picture import QUEUE_SHOWN
from minivllm.recorder import Recorder
from minivllm.viz.queue_words import moves_in_words, queue_in_words
from minivllm.viz.remains import Left, Remains
from minivllm.viz.tick_log import spans_to_json
from minivllm.viz.track import Track

FRONT, BACK = 14, 8
"""Blocks shown of each end of a longer queue."""


class QueueTrack(Track):
    """A track that also tells the queue after every tick. `live` is the queue of the engine as it is now."""

    def __init__(self, recorder: Recorder, read: Callable[[str], list[str]], remains: Remains,
                 live: Callable[[], tuple[int, ...]]) -> None:  # fmt: skip
        self.remains, self.live = remains, live
        self._applied = 0  # events of the tick under way that `remains` has seen
        self._long: dict[int, tuple[int, ...]] = {}  # queues that are too long to be recorded
        super().__init__(recorder, read)

    def queue(self, at: int) -> tuple[int, ...]:
        """The queue after the `at`-th recorded tick, front first."""
        if at == self.recorder.last_tick:
            return self.live()
        if at == 0:
            shown = self.recorder.at(0)
            return tuple(range(shown.num_blocks)) if shown.layout == "paged" else ()
        end = self.recorder.ticks[at - 1][-1]
        return self._long.get(at, end.free if isinstance(end, ev.End) else ())

    def remains_at(self, at: int, known: Mapping[str, Sequence[str]]) -> Remains:
        """What was left after an earlier tick, replayed from the events."""
        past = Remains(known)
        for events in self.recorder.ticks[: max(at, 1)]:
            for event in events:
                if at == 0 and isinstance(event, ev.Start):
                    return past
                past.apply(event)
        return past

    def sentence(self, tick: int) -> str:
        """What moved in the queue and who goes next, and at the edge what has happened since."""
        at = self.index(tick)
        if not at:
            return super().sentence(tick)
        tail = self.tail if tick == self.edge else []
        facts = (tail or self.told[at - 1 : at])[-1]["queue"]
        said = "".join(part if isinstance(part, str) else part["who"] for part in facts["say"])
        return " ".join([said, *(item["text"] for item in tail[-2:] if item["text"])])

    def between(self, event: ev.Event) -> dict[str, Any]:
        """The payload of an event between two ticks, with the queue as it is now."""
        item = super().between(event)
        self._apply([event])
        item["queue"] = self._facts(self.live(), [])
        return item

    def _tick(self, at: int) -> dict[str, Any]:
        payload, events = super()._tick(at), self.recorder.events_of(at)
        homes = self._apply(events[self._applied :])
        self._applied = 0
        if self.remains.num_blocks > QUEUE_SHOWN:
            self._long[at] = self.live()
        end = events[-1]
        queue = self._long.get(at, end.free if isinstance(end, ev.End) and self.remains.paged else ())
        payload["queue"] = self._facts(queue, [] if payload["opening"] else moves_in_words(events, homes))
        return payload

    def _apply(self, events: Sequence[ev.Event]) -> dict[int, str]:
        """Lead `remains` through these events; whose content the evicted blocks had held."""
        homes: dict[int, str] = {}
        for event in events:
            if isinstance(event, ev.Evict):
                homes[event.block] = self.remains.home.get(event.block, ("", 0))[0]
            self.remains.apply(event)
        self._applied += len(events)
        return homes

    def _facts(self, queue: Sequence[int], moves: list[str]) -> dict[str, Any]:
        """What the browser needs to draw the queue: its two ends, whose content they hold, what is left of one request."""
        whole = len(queue) <= FRONT + BACK + 2
        front, back = (queue, ()) if whole else (queue[:FRONT], queue[-BACK:])
        homes = {block: self.remains.home[block] for block in [*front, *back] if block in self.remains.home}
        left = self.remains.latest()
        words = queue_in_words(queue, self.remains) if self.remains.paged else ["This layout has holes, not a queue."]
        return {
            "size": len(queue), "front": list(front), "back": list(back), "homes": {str(b): list(h) for b, h in homes.items()},
            "left": left and shown_of(left), "say": spans_to_json([*moves, *words]),
        }  # fmt: skip


def shown_of(left: Left, first: int = 8, last: int = 4) -> dict[str, Any]:
    """What is left of a request for a picture: all its blocks, of many the first and the last ones."""
    places = list(enumerate(left.blocks))
    shown = places if len(places) <= first + last else [*places[:first], *places[-last:]]
    return {"who": left.request, "blocks": [list(place) for place in shown], "had": len(places), "hit": left.hit,
            "gone": left.blocks.count(None), "prompt": left.prompt_only}  # fmt: skip

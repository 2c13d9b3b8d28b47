"""In which ticks of a recording a fault can be seen: what a diagnosis has to point at."""

from collections import Counter
from collections.abc import Callable

from minivllm import events as ev
from minivllm.recorder import Recorder


def where(recording: Recorder, shows: Callable[[ev.Event], bool]) -> list[int]:
    """Ticks with an event that `shows` it. It is asked about every event, in order, so it may keep count.

    The tick that an error broke off is counted too.
    """
    return [tick for tick, events in enumerate(recording.ticks, 1) if True in [shows(event) for event in events]]


def taken_while_held(recording: Recorder) -> list[int]:
    """Ticks in which a block was handed out although somebody held it."""
    held: Counter[int] = Counter()

    def shows(event: ev.Event) -> bool:
        if isinstance(event, ev.Hit | ev.Take):
            held[event.block] += 1
            return isinstance(event, ev.Take) and held[event.block] > 1
        if isinstance(event, ev.Release):
            held[event.block] -= 1
        return False

    return where(recording, shows)


def out_of_turn(recording: Recorder) -> list[int]:
    """Ticks in which somebody was admitted who had come later than one that went on waiting."""
    waiting: dict[str, None] = {}

    def shows(event: ev.Event) -> bool:
        if isinstance(event, ev.Arrive):
            waiting[event.request] = None
        elif isinstance(event, ev.Admit) and event.request in waiting:
            first = next(iter(waiting))
            del waiting[event.request]
            return event.request != first
        return False

    return where(recording, shows)


def stuck(recording: Recorder) -> list[int]:
    """Ticks in which somebody waits for memory and nobody runs."""
    waits = where(recording, lambda event: isinstance(event, ev.Wait) and event.reason == "memory")
    return sorted({*waits} - {*where(recording, lambda event: isinstance(event, ev.Run))})


def computed_twice(recording: Recorder) -> list[int]:
    """Ticks in which a block was evicted that was computed again later, and those in which it was."""
    gone: dict[str, int] = {}
    found: set[int] = set()
    for tick, events in enumerate(recording.ticks, 1):
        for event in events:
            if isinstance(event, ev.Evict):
                gone[event.hash] = tick
            elif isinstance(event, ev.Publish) and event.hash in gone:
                found |= {gone.pop(event.hash), tick}
    return sorted(found)

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


def held_by_nobody(recording: Recorder) -> list[int]:
    """Ticks at whose end a request that is over still has blocks."""
    held: Counter[str] = Counter()
    over: set[str] = set()

    def shows(event: ev.Event) -> bool:
        if isinstance(event, ev.Hit | ev.Take):
            held[event.request] += 1
        elif isinstance(event, ev.Release):
            held[event.request] -= 1
        elif isinstance(event, ev.Finish):
            over.add(event.request)
        return isinstance(event, ev.End) and any(held[name] for name in over)

    return where(recording, shows)


def held_and_free(recording: Recorder) -> list[int]:
    """Ticks at whose end a block that somebody holds stands in the free queue, and the tick in which that ends badly."""
    held: Counter[int] = Counter()
    seen = False

    def shows(event: ev.Event) -> bool:
        nonlocal seen
        if isinstance(event, ev.Hit | ev.Take):
            held[event.block] += 1
        elif isinstance(event, ev.Release):
            held[event.block] -= 1
        here = isinstance(event, ev.End) and any(held[block] > 0 for block in event.free)
        seen = seen or here
        return here or (seen and isinstance(event, ev.Fail))

    return where(recording, shows)


def overtaken(recording: Recorder) -> list[int]:
    """Ticks in which somebody waits whom a later one has overtaken."""
    waiting: dict[str, bool] = {}  # in order of arrival; whether a later one was admitted before

    def shows(event: ev.Event) -> bool:
        if isinstance(event, ev.Arrive):
            waiting[event.request] = False
        elif isinstance(event, ev.Admit) and event.request in waiting:
            for name in waiting:
                if name == event.request:
                    break
                waiting[name] = True
            del waiting[event.request]
        return any(waiting.values())

    return where(recording, shows)


def pushed_out(recording: Recorder) -> list[int]:
    """Ticks in which somebody is preempted, or computes again what was lost."""
    return where(
        recording, lambda event: isinstance(event, ev.Preempt) or (isinstance(event, ev.Admit) and event.resumed)
    )


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

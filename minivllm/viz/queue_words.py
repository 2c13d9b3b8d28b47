"""The free queue in words: what came in and went out in a tick, who goes next, and why."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from minivllm import events as ev
from minivllm.narrate import Spans, Who, listing, number
from minivllm.viz.remains import Remains


def queue_in_words(queue: Sequence[int], remains: Remains) -> Spans:
    """Who goes first, and why: the sentence about the free queue."""
    if not queue:
        return ["No block can be taken: each one is referenced."]
    free = [str(block) for block in queue if block not in remains.hash]
    can = f"{number(len(queue)).capitalize()} block{'s' if len(queue) > 1 else ''} can be taken"
    if len(free) == len(queue):
        return [f"{can}, {'none has a' if len(free) > 1 else 'it has no'} hash to lose."]
    spans: Spans = [f"{can}. "]
    if free:
        spans += listing(free) if len(free) <= 6 else [f"{number(len(free))} of them".capitalize()]
        spans.append(f" go{'es first, it has' if len(free) == 1 else ' first, they have'} no hash to lose. ")
    groups = _groups([block for block in queue if block in remains.hash], remains)
    for at, (who, places) in enumerate(groups[:2]):
        ordered = [i for _, i in places]
        way = ""
        if len(places) > 1 and ordered in (sorted(ordered), sorted(ordered)[::-1]):
            way = f", {'tail' if ordered[0] > ordered[-1] else 'head'} first"
        ids = listing([str(block) for block, _ in places])
        what: Spans = ["what ", Who(who), " left"] if who else ["older content"]
        first = "Then " if free else "First goes "
        spans += [first if not at else ", then ", *what, way, ": " if not at else " (", *ids, "" if not at else ")"]
    rest = sum(len(places) for _, places in groups[2:])
    return [*spans, f", then {number(rest)} of others." if rest else "."]


def moves_in_words(told: Iterable[ev.Event], homes: Mapping[int, str]) -> Spans:
    """What came into the queue and went out of it in one tick. `homes`: whose content each evicted block had held."""
    events = list(told)
    spans: Spans = []
    lost = [homes.get(e.block, "") for e in events if isinstance(e, ev.Evict)]
    if lost:
        writers = [Who(who) for who in dict.fromkeys(lost) if who]
        spans += [f"{number(len(lost)).capitalize()} block{'s' if len(lost) > 1 else ''}"]
        spans += [" of ", *listing(writers)] if writers else [" with a hash"]
        spans += [" was evicted. " if len(lost) == 1 else " were evicted. "]
    for who, n in _counted(e.request for e in events if isinstance(e, ev.Hit) and e.ref == 1):
        spans += [Who(who), f" hits {number(n)} block{'s' if n > 1 else ''} in the queue"]
        spans.append(f" and lifts {'them' if n > 1 else 'it'} out. ")
    stopped = {e.request for e in events if isinstance(e, ev.Preempt)}
    ended = {e.request for e in events if isinstance(e, ev.Finish)}
    for who, n in _counted(e.request for e in events if isinstance(e, ev.Release) and e.ref == 0):
        why = " is preempted and" if who in stopped else " ends and" if who in ended else ""
        spans += [Who(who), f"{why} lets go of {number(n)} block{'s' if n > 1 else ''}. "]
    return spans


def _counted(names: Iterable[str], most: int = 3) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return list(counts.items())[:most]


def _groups(cached: Sequence[int], remains: Remains) -> list[tuple[str, list[tuple[int, int]]]]:
    """Neighbours in the queue with content of one request: its id, and (block, logical index) of each."""
    placed = [(block, *remains.home.get(block, ("", 0))) for block in cached]
    return [(who, [(block, index) for block, _, index in run]) for who, run in groupby(placed, key=lambda p: p[1])]

"""What the cache still holds of each request: whose content a block keeps, and how far a prefix is whole from its start.

Followed from events alone, like every picture: a request's chain is the hashes of its full blocks in order, and a new
request with the same tokens can hit that chain up to the first hash that is gone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from minivllm import events as ev
from minivllm.narrate import Spans, Who, listing, number
from minivllm.picture import QUEUE_SHOWN
from minivllm.recorder import MAX_FINISHED, Recorder
from minivllm.viz.tick_log import spans_to_json
from minivllm.viz.track import Track

FRONT, BACK = 14, 8
"""Blocks shown of each end of a longer queue."""


class Left(NamedTuple):
    """What is left of one request: per logical block the block that holds it or None; the first `hit` can be hit."""

    request: str
    blocks: tuple[int | None, ...]
    hit: int
    prompt_only: bool


class Remains:
    """Applies events one by one. `known` gives the chains of requests that were there before the recording began."""

    def __init__(self, known: Mapping[str, Sequence[str]] | None = None) -> None:
        self.home: dict[int, tuple[str, int]] = {}  # block -> who published its content, as which logical block
        self.hash: dict[int, str] = {}
        self.holders: dict[str, dict[int, None]] = {}  # hash -> the blocks that hold it
        self.chain: dict[str, dict[int, str]] = {}  # request -> logical index -> hash
        self.prompt: dict[str, int] = {}
        self.finished: dict[str, int] = {}  # -> number of the eviction that broke the chain first, 0 before that
        self.num_blocks, self.block_size, self.paged = 0, 1, True
        self._known = dict(known or {})
        self._readers: dict[str, dict[str, int]] = {}  # hash -> the requests whose chain it is in, and where
        self._evictions = 0

    def apply(self, event: ev.Event) -> None:
        """Let one event happen. Kinds that move no content are passed over."""
        match event:
            case ev.Engine(rebuilt=True):
                self.num_blocks, self.block_size, self.paged = (
                    event.num_blocks,
                    event.block_size,
                    event.layout == "paged",
                )
                for store in (self.home, self.hash, self.holders, self._readers, self.finished):
                    store.clear()
                self.chain = {} if not event.changed else {who: {} for who in self.chain}
            case ev.Arrive(who, prompt) | ev.Fork(request=who, prompt_tokens=prompt):
                self._begin(who, prompt)
                # a fork's last block may hold tokens that only its parent has
                blocks = event.blocks[: event.computed // self.block_size] if isinstance(event, ev.Fork) else ()
                chain = [self.hash[block] for block in blocks if block in self.hash]
                for index, digest in enumerate(chain or self._known.pop(who, ())):
                    self._link(who, index, digest)
            case ev.Hit(who, block, index) if block in self.hash:
                self._link(who, index, self.hash[block])
            case ev.Publish(who, block, index, digest):
                self.hash[block] = digest
                self.holders.setdefault(digest, {})[block] = None
                if who:
                    self.home[block] = (who, index)
                    self._link(who, index, digest)
                elif digest in self._readers:  # it was there before the recording began
                    self.home[block] = next(iter(self._readers[digest].items()))
            case ev.Evict(block):
                self._forget(block)
            case ev.Reset(blocks):
                for block in blocks:
                    self._forget(block)
            case ev.Finish(who):
                self.finished[who] = 0
                for old in list(self.finished)[:-MAX_FINISHED]:
                    del self.finished[old]

    def left(self, request_id: str) -> Left:
        """What is left of a request that is or was here. `ValueError` for another one."""
        if request_id not in self.chain:
            raise ValueError(f"no request {request_id!r} was here; there are {', '.join(self.chain) or 'none'}")
        chain = self.chain[request_id]
        blocks = tuple(next(iter(self.holders.get(chain[i], ())), None) for i in sorted(chain))
        hit = next((at for at, block in enumerate(blocks) if block is None), len(blocks))
        prompt_only = len(blocks) * self.block_size <= self.prompt[request_id]
        return Left(request_id, blocks, hit, prompt_only)

    def latest(self) -> Left | None:
        """Of the finished requests, the one whose content began to go most recently; before that the last to finish."""
        done = [who for who in self.finished if self.chain[who]]
        return self.left(max(reversed(done), key=self.finished.__getitem__)) if done else None

    def _begin(self, who: str, prompt: int) -> None:
        """An empty chain; an id that comes again starts over."""
        self.finished.pop(who, None)
        self.chain[who], self.prompt[who] = {}, prompt

    def _link(self, who: str, index: int, digest: str) -> None:
        self.chain[who][index] = digest
        self._readers.setdefault(digest, {})[who] = index

    def _forget(self, block: int) -> None:
        digest = self.hash.pop(block, None)
        home = self.home.pop(block, ("", 0))[0]
        if digest is None:
            return
        del self.holders[digest][block]
        if self.holders[digest]:
            return  # another block holds the same
        del self.holders[digest]
        self._evictions += 2  # of those that shared it, the one that had written it counts as the last
        for who, index in self._readers.get(digest, {}).items():
            if self.finished.get(who) == 0 and self.chain[who].get(index) == digest:
                self.finished[who] = self._evictions + (who == home)


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

"""Who is admitted next, and who is preempted first: each scheduling policy is one small class.

`pick` looks at the waiting requests (arrival order, preempted ones in front) and returns the one to try next. If it
does not fit, nobody is admitted in this step: jumping over it would let small requests starve a big one.
"""

from collections.abc import Sequence
from typing import Protocol

from minivllm.core.cache import Cache
from minivllm.request import Request


class Policy(Protocol):
    """Write these two methods and hand the object to `Engine(policy=…)`."""

    def pick(self, waiting: Sequence[Request], cache: Cache, tick: int) -> Request:
        """Which of the waiting requests is tried next."""

    def victim(self, running: Sequence[Request]) -> Request:
        """Which of the running requests gives its blocks back when there are none left."""


class FCFS:
    """First come, first served. Bound: nobody is overtaken."""

    def pick(self, waiting: Sequence[Request], cache: Cache, tick: int) -> Request:
        """The longest waiting."""
        return waiting[0]

    def victim(self, running: Sequence[Request]) -> Request:
        """The last admitted: it has the least to lose."""
        return running[-1]


class Priority(FCFS):
    """Smallest `priority` first, then arrival. Bound: only smaller numbers overtake; many of them starve others."""

    def pick(self, waiting: Sequence[Request], cache: Cache, tick: int) -> Request:
        """The most urgent, the earliest of these."""
        return min(waiting, key=lambda r: (r.priority, r.arrival))

    def victim(self, running: Sequence[Request]) -> Request:
        """The least urgent, the last admitted of these."""
        return max(enumerate(running), key=lambda item: (item[1].priority, item[0]))[1]


class LongestPrefix(FCFS):
    """Most cached tokens first (affinity), so that a prefix is used while it is still there.

    Bound: whoever has waited `patience` ticks goes first, in arrival order; without that, a steady stream of hits would
    starve everybody else. Only the first `window` of the queue are compared: matching costs a look-up per block.
    """

    def __init__(self, patience: int = 64, window: int = 128) -> None:
        self.patience, self.window = patience, window

    def pick(self, waiting: Sequence[Request], cache: Cache, tick: int) -> Request:
        """The oldest of the impatient, else the one with most to reuse."""
        oldest = min(waiting, key=lambda r: r.arrival)
        if tick - oldest.arrived_tick >= self.patience:
            return oldest
        return max(waiting[: self.window], key=lambda r: (len(cache.match(r)), -r.arrival))


class ShortestPrompt(FCFS):
    """Fewest tokens to compute first: best mean time to first token. Bound: `patience` ticks, as above."""

    def __init__(self, patience: int = 64) -> None:
        self.patience = patience

    def pick(self, waiting: Sequence[Request], cache: Cache, tick: int) -> Request:
        """The oldest of the impatient, else the shortest."""
        oldest = min(waiting, key=lambda r: r.arrival)
        if tick - oldest.arrived_tick >= self.patience:
            return oldest
        return min(waiting, key=lambda r: (len(r.tokens), r.arrival))


BY_NAME: dict[str, type[FCFS]] = {
    "fcfs": FCFS,
    "priority": Priority,
    "longest-prefix": LongestPrefix,
    "shortest-prompt": ShortestPrompt,
}

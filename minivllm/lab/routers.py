"""Who serves a request: by chance, in turns, whoever has least to do, or whoever knows most of the prompt."""

import random
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Protocol

from minivllm.allowed import whole

if TYPE_CHECKING:
    from minivllm.lab.fleet import Replica


class Router(Protocol):
    """Write this method and hand the object to `Fleet`."""

    def route(self, prompt: list[int], replicas: "Sequence[Replica]") -> int:
        """The place in `replicas` of the one that serves `prompt`."""


class RandomRouter:
    """Anybody, by a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)

    def route(self, prompt: list[int], replicas: "Sequence[Replica]") -> int:
        """Each is as likely as the others."""
        return self._rng.randrange(len(replicas))


class RoundRobin:
    """One after the other."""

    def __init__(self) -> None:
        self._turns = count()

    def route(self, prompt: list[int], replicas: "Sequence[Replica]") -> int:
        """The next in turn."""
        return next(self._turns) % len(replicas)


class LeastLoaded:
    """Whoever has the fewest requests."""

    def route(self, prompt: list[int], replicas: "Sequence[Replica]") -> int:
        """The smallest load, the first of equals."""
        return min(range(len(replicas)), key=lambda n: replicas[n].load)


class PrefixAffinity:
    """Whoever knows most of the prompt, unless it has more than `slack` requests above the least loaded."""

    def __init__(self, slack: int = 4) -> None:
        self.slack = whole("slack", slack, 0)

    def route(self, prompt: list[int], replicas: "Sequence[Replica]") -> int:
        """The longest match among those that are not overloaded; of equals the least loaded."""
        limit = min(replica.load for replica in replicas) + self.slack
        free = [n for n, replica in enumerate(replicas) if replica.load <= limit]
        return max(free, key=lambda n: (replicas[n].match(prompt), -replicas[n].load))

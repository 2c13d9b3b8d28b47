"""N replicas of an engine, each with its own cache and clock, and a router that decides, once per request, who serves it.

A replica keeps what it has computed to itself. So where a request goes decides what it finds.
"""

import heapq
from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from minivllm.allowed import has_methods, whole
from minivllm.config import EngineConfig
from minivllm.engine import Engine
from minivllm.lab.device import TimedRunner, TimeModel
from minivllm.lab.routers import Router
from minivllm.lab.workloads import Call, tokens_of, turns
from minivllm.metrics import Metrics
from minivllm.request import Request, SamplingParams
from minivllm.runtime.sim import SimRunner


class Replica:
    """One engine of a fleet, with its own pool, prefix cache and clock. `config` must say `num_blocks`."""

    def __init__(self, number: int, config: EngineConfig, time: TimeModel) -> None:
        if config.num_blocks is None:
            raise ValueError("a simulated replica needs a pool: give num_blocks in its EngineConfig")
        self.number = number
        self.runner = TimedRunner(SimRunner(config.num_blocks, config.block_size), time)
        self.engine = Engine(config, runner=self.runner)
        self.metrics = Metrics(self.engine, clock=self.runner.now)
        self.recorder = self.engine.record()

    @property
    def load(self) -> int:
        """Requests that run or wait here."""
        return len(self.engine.scheduler.requests)

    def match(self, prompt: list[int]) -> int:
        """Tokens of `prompt` that this replica would find in its cache now."""
        probe = Request("probe", list(prompt), SamplingParams(), limit=len(prompt) + 1)
        cache = self.engine.scheduler.cache
        return len(cache.match(probe)) * cache.block_size

    def __repr__(self) -> str:
        return f"Replica({self.number}, {self.load} requests)"


class Routed(NamedTuple):
    """One decision, with what the router could see: an entry per replica in `found`, `loads` and `ticks`."""

    at: float  # seconds
    call: str  # request id
    replica: int
    found: tuple[int, ...]  # tokens each would find cached
    loads: tuple[int, ...]  # requests there, before this one joins
    prompt_tokens: int
    ticks: tuple[int, ...]  # each engine's tick


class Fleet:
    """`n` replicas of `config` behind `router`. `serve` plays a workload to them, once; then there is much to read."""

    def __init__(self, n: int, config: EngineConfig, router: Router, time: TimeModel | None = None) -> None:
        self.replicas = [Replica(number, config, time or TimeModel()) for number in range(whole("n", n, 1))]
        has_methods("router", router, ("route",), "an object with a method route(prompt, replicas)")
        self.router = router
        self.routed: list[Routed] = []
        self.ttft: list[float] = []  # seconds from a call's arrival to its first token, sorted

    def serve(self, calls: Iterable[Call]) -> None:
        """Run until every call is answered; a follow-up turn is routed anew, and may meet a replica that never saw it.

        A step that has begun is seen as done: a request cannot join it anyway. Raises `ValueError` for a call that
        follows one that is not there or has another's id, for a router's choice that is no replica, and for a second workload.
        """
        if self.routed:
            raise ValueError(f"this fleet has served {len(self.routed)} calls already; make a new one")
        first, followers = turns(calls)
        order = count()
        due = [(call.at, next(order), call, list[int]()) for call in first]
        heapq.heapify(due)
        arrived: dict[str, float] = {}  # calls without a first token yet
        while True:
            busy = [replica for replica in self.replicas if replica.engine.has_unfinished]
            next_step = min((replica.runner.seconds for replica in busy), default=float("inf"))
            if due and due[0][0] <= next_step:
                at, _, call, history = heapq.heappop(due)
                self._send(at, call, history)
                arrived[call.id] = at
                continue
            if not busy:
                break
            replica = min(busy, key=lambda one: one.runner.seconds)  # so no step begins before what came earlier
            report = replica.engine.step()
            now = replica.runner.seconds
            self.ttft += [now - arrived.pop(name) for name in report.tokens if name in arrived]
            for name in report.finished:
                output = replica.engine.result(name)
                history = output.prompt_token_ids + output.outputs[0].token_ids
                for call in followers.get(name, ()):
                    heapq.heappush(due, (now + call.at, next(order), call, history))
        self.ttft.sort()

    @property
    def hit_rate(self) -> float:
        """Prompt tokens found in some replica's cache, as a share of all; 0 before the first."""
        queried = sum(replica.metrics.queried for replica in self.replicas)
        return sum(replica.metrics.hits for replica in self.replicas) / queried if queried else 0.0

    @property
    def seconds(self) -> float:
        """When the last answer was complete."""
        return max(replica.runner.seconds for replica in self.replicas)

    @property
    def balance(self) -> float:
        """The largest share of all computed tokens that one replica had, times n: 1.0 is even, n is all on one."""
        computed = [replica.metrics.computed_tokens for replica in self.replicas]
        return max(computed) * len(computed) / sum(computed) if any(computed) else 1.0

    @property
    def unused(self) -> int:
        """Replicas that computed nothing at all."""
        return sum(replica.metrics.computed_tokens == 0 for replica in self.replicas)

    def _send(self, at: float, call: Call, history: list[int]) -> None:
        """Ask the router, note its decision, and queue the call there."""
        prompt = history + tokens_of(call.prompt, self.replicas[0].runner.vocab_size)
        found, loads, ticks = zip(*((r.match(prompt), r.load, r.engine.tick) for r in self.replicas), strict=True)
        asked = self.router.route(list(prompt), tuple(self.replicas))  # copies: whatever it does with them is its own
        missing = "; is a `return` missing?" if asked is None else ""
        chosen = whole("the router's choice", asked, 0, len(self.replicas) - 1, note=missing)
        replica = self.replicas[chosen]
        replica.runner.seconds = max(replica.runner.seconds, at)
        params = SamplingParams(max_tokens=call.output, temperature=0.0, ignore_eos=True)
        replica.engine.add(prompt, params, request_id=call.id, priority=call.priority)
        self.routed.append(Routed(at, call.id, chosen, found, loads, len(prompt), ticks))

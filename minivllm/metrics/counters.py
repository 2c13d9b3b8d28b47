"""A listener that counts: use of the pool per tick, hit rate, time to first token, throughput, preemptions."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from minivllm import events as ev
from minivllm.engine import Engine
from minivllm.metrics import report
from minivllm.metrics.pool import PoolWatch, Use
from minivllm.picture import opening


@dataclass
class _Timing:
    """When a request came, and when its tokens did; each time as (tick, seconds)."""

    prompt: int
    arrived: tuple[int, float]
    first: tuple[int, float] | None = None
    last: tuple[int, float] = (0, 0.0)
    tokens: int = 0


class Metrics:
    """Counts from the moment it is made: `print(metrics)` is one small table, `prometheus()` the same for a scraper.

    `clock` gives seconds, for engines whose time is simulated. A resumed request asks the prefix cache nothing: to
    find its own blocks again saves no work. `detach()` stops the counting.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._pool = PoolWatch()
        self._timing: dict[str, _Timing] = {}
        self._caching = self._failed = False
        self._tick = 0
        self.clear()
        for event in opening(engine.config, engine.scheduler.policy, engine.snapshot()):
            self(event)
        self.clear()
        self.detach = engine.bus.subscribe(self)

    def clear(self) -> None:
        """Set all counts to zero; what is known of the pool and of live requests stays."""
        self.steps: list[Use] = []
        self.prompt_tokens = self.generation_tokens = self.computed_tokens = 0
        self.queried = self.hits = self.evictions = 0
        self.preemptions = self.lost_tokens = 0
        self.refused: Counter[str] = Counter()  # ticks in which the next in line had to wait, by reason
        self.finished: Counter[str] = Counter()
        self.ttft: list[tuple[int, float]] = []  # ticks and seconds from arrival to first token
        self.tpot: list[tuple[float, float]] = []  # ticks and seconds per further token, of finished requests
        self.began = self.clock()

    def __call__(self, event: ev.Event) -> None:
        """Count one event."""
        self._pool(event)
        if self._failed and not isinstance(event, ev.Start | ev.End | ev.Fork | ev.Mend):
            self._told_anew(event)
            return
        handler = getattr(self, f"_on_{event.kind}", None)
        if handler:
            handler(event)

    @property
    def hit_rate(self) -> float:
        """Prompt tokens found in the prefix cache, as a share of those looked up; 0 before the first."""
        return self.hits / self.queried if self.queried else 0.0

    @property
    def throughput(self) -> float:
        """Generated tokens per second of the clock, from the start to the last tick."""
        seconds = self.steps[-1].seconds - self.began if self.steps else 0.0
        return self.generation_tokens / seconds if seconds > 0 else 0.0

    def share(self, kind: str, of: str = "total") -> float:
        """Mean over the ticks of one kind of use ("used", "internal", …): a share of `total` or of what is `held`."""
        whole = sum(getattr(step, of) for step in self.steps)
        return sum(getattr(step, kind) for step in self.steps) / whole if whole else 0.0

    def __str__(self) -> str:
        ticks, seconds = [t for t, _ in self.ttft], [s for _, s in self.ttft]
        held = max((step.held for step in self.steps), default=0)
        ended = ", ".join(f"{number} {why}" for why, number in sorted(self.finished.items()))
        reserved, internal = self.share("reserved", "held"), self.share("internal", "held")
        rows = {
            "ticks": f"{len(self.steps)}",
            "requests finished": ended or "none",
            "tokens computed / generated": f"{self.computed_tokens} / {self.generation_tokens}",
            "pool held at the peak": f"{held} of {self._pool.num_blocks * self._pool.block_size} slots",
            "of held slots": f"{self.share('used', 'held'):.1%} used, {reserved:.1%} reserved, {internal:.1%} internal",
            "of the pool": f"{self.share('external'):.1%} external waste, {self.share('cached'):.1%} cached",
            "prompt tokens hit": f"{self.hits} of {self.queried} ({self.hit_rate:.1%}), {self.evictions} evictions",
            "preemptions": f"{self.preemptions}, {self.lost_tokens} computed tokens lost",
            "time to first token": report.spread(ticks, "ticks"),
            "": report.spread(seconds, "s"),
            "time per further token": report.spread([s for _, s in self.tpot], "s"),
        }
        return "\n".join(f"{name:<28} {value}" for name, value in rows.items())

    def prometheus(self) -> str:
        """The text a Prometheus server scrapes. Names and meanings are vLLM's, under our own prefix."""
        now = self.steps[-1] if self.steps else self._pool.use(self._tick, 0.0)
        taken = (now.held + now.external) / now.total if now.total else 0.0
        lines = [
            *report.scalar("num_requests_running", "gauge", now.running),
            *report.scalar("num_requests_waiting", "gauge", now.waiting),
            *report.scalar("gpu_cache_usage_perc", "gauge", taken),
            *report.scalar("prefix_cache_queries_total", "counter", self.queried),
            *report.scalar("prefix_cache_hits_total", "counter", self.hits),
            *report.scalar("num_preemptions_total", "counter", self.preemptions),
            *report.scalar("prompt_tokens_total", "counter", self.prompt_tokens),
            *report.scalar("generation_tokens_total", "counter", self.generation_tokens),
            *report.labelled("request_success_total", "finished_reason", self.finished),
            *report.histogram("time_to_first_token_seconds", [s for _, s in self.ttft], report.TTFT_BUCKETS),
            *report.histogram("time_per_output_token_seconds", [s for _, s in self.tpot], report.TPOT_BUCKETS),
        ]
        return "\n".join(lines) + "\n"

    def _on_engine(self, event: ev.Engine) -> None:
        self._caching = event.prefix_caching

    def _on_start(self, event: ev.Start) -> None:
        self._tick, self._failed = event.tick, False

    def _on_arrive(self, event: ev.Arrive) -> None:
        self._timing[event.request] = _Timing(event.prompt_tokens, (self._tick, self.clock()))

    def _on_fork(self, event: ev.Fork) -> None:
        self._timing[event.request] = _Timing(event.prompt_tokens, (self._tick, self.clock()))

    def _on_admit(self, event: ev.Admit) -> None:
        if not event.resumed:
            self.prompt_tokens += self._timing[event.request].prompt
            self.queried += self._timing[event.request].prompt if self._caching else 0
            self.hits += event.cached

    def _on_wait(self, event: ev.Wait) -> None:
        self.refused[event.reason] += 1

    def _on_evict(self, event: ev.Evict) -> None:
        self.evictions += 1

    def _on_fail(self, event: ev.Fail) -> None:
        self._failed = True

    def _on_mend(self, event: ev.Mend) -> None:
        self._failed = False

    def _told_anew(self, event: ev.Event) -> None:
        """After a failure nothing new happens, but a sample may be queued that could not share its parent's blocks."""
        if isinstance(event, ev.Arrive) and event.request not in self._timing:
            self._on_arrive(event)
        elif isinstance(event, ev.Finish):  # one that had ended long before
            self._timing.pop(event.request, None)

    def _on_preempt(self, event: ev.Preempt) -> None:
        self.preemptions += 1
        self.lost_tokens += event.lost

    def _on_run(self, event: ev.Run) -> None:
        self.computed_tokens += event.count

    def _on_token(self, event: ev.Token) -> None:
        timing = self._timing[event.request]
        timing.last = self._tick, self.clock()
        timing.tokens += 1
        self.generation_tokens += 1
        if event.first:
            timing.first = timing.last
            self.ttft.append((timing.last[0] - timing.arrived[0], timing.last[1] - timing.arrived[1]))

    def _on_finish(self, event: ev.Finish) -> None:
        timing = self._timing.pop(event.request)
        self.finished[event.reason] += 1
        if timing.first and timing.tokens > 1:
            ticks, seconds = timing.last[0] - timing.first[0], timing.last[1] - timing.first[1]
            self.tpot.append((ticks / (timing.tokens - 1), seconds / (timing.tokens - 1)))

    def _on_end(self, event: ev.End) -> None:
        self.steps.append(self._pool.use(event.tick, self.clock()))

"""Anything, in any order: an engine under a random life stays consistent, and every request says what it says alone.

After every rule the audit is clean, the events replay to the live picture, and blocks add up. `MINIVLLM_LONG=1` lives
longer.
"""

import os
from dataclasses import replace
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from simulated import alone, greedy, simulate

from minivllm.core.kv_manager import KVManager
from minivllm.core.plan import Plan
from minivllm.recorder import Replay
from minivllm.runtime.sim import SimRunner
from minivllm.runtime.ticket import StepResult

LONG = os.environ.get("MINIVLLM_LONG") == "1"
LIVES, RULES = (500, 50) if LONG else (110, 40)
PREFIXES = [[], [1] * 4, list(range(10, 21)), list(range(10, 34)), [7] * 20]
BLOCK_SIZES = st.one_of(st.sampled_from([1, 2, 3, 4, 4, 8, 16]), st.integers(1, 64))
POOL_TOKENS = st.one_of(st.integers(1, 60), st.integers(30, 200))


class Asked(NamedTuple):
    """A prompt, how many tokens were asked for, and in how many samples."""

    prompt: list[int]
    many: int | None
    n: int


ASK = st.fixed_dictionaries({
    "prefix": st.sampled_from(PREFIXES), "tail": st.lists(st.integers(0, 3), max_size=9), "many": st.integers(1, 24),
    "n": st.sampled_from([1, 1, 1, 2, 3]), "salt": st.sampled_from([None, None, None, "a"]),
    "priority": st.integers(0, 2), "name": st.sampled_from([None, None, None, "x", "A.1"]),
})  # fmt: skip


class Fragile(SimRunner):
    """Breaks in its next launch when `broken` is "before" or "after" the work."""

    broken: str | None = None

    def launch(self, plan: Plan) -> StepResult:
        when, self.broken = self.broken, None
        if when == "before":
            raise KeyboardInterrupt
        result = super().launch(plan)
        if when == "after":
            raise KeyboardInterrupt
        return result


class Life(RuleBasedStateMachine):
    @initialize(
        bs=BLOCK_SIZES, tokens=POOL_TOKENS, budget=st.integers(1, 60), seats=st.integers(1, 6), chunked=st.booleans(),
        mixed=st.booleans(), watermark=st.sampled_from([0, 0, 0.2]), asks=st.lists(ASK, min_size=2, max_size=6),
    )  # fmt: skip
    def start(
        self, bs: int, tokens: int, budget: int, seats: int, chunked: bool, mixed: bool, watermark: float, asks: list
    ) -> None:
        blocks = max(1, tokens // bs)
        self.runner = Fragile(blocks, bs)
        self.engine = simulate(
            bs=bs, blocks=blocks, budget=budget, max_num_seqs=seats, enable_chunked_prefill=chunked,
            mix_prefill_decode=mixed, watermark=watermark, max_model_len=128, runner=self.runner,
        )  # fmt: skip
        self.recorder = self.engine.record()
        self.replay = Replay()
        for event in self.recorder.ticks[0]:
            self.replay.apply(event)
        self.engine.bus.subscribe(self.replay.apply)
        self.asked: dict[str, Asked] = {}  # what lives or has ended, and was not aborted
        self.add(asks)

    # -- rules ---------------------------------------------------------------------------------------------------------

    @rule(asks=st.lists(ASK, min_size=1, max_size=3))
    def add(self, asks: list[dict[str, Any]]) -> None:
        for ask in asks:
            prompt, params = [*ask["prefix"], *ask["tail"]], greedy(ask["many"], n=ask["n"])
            queued = list(self.engine.scheduler.requests)
            try:
                name = self.engine.add(
                    prompt, params, request_id=ask["name"], priority=ask["priority"], cache_salt=ask["salt"]
                )
            except ValueError:
                assert list(self.engine.scheduler.requests) == queued
            else:
                self.asked[name] = Asked(prompt, ask["many"], ask["n"])

    @precondition(lambda self: self.engine.has_unfinished)
    @rule(times=st.integers(1, 5))
    def go_on(self, times: int) -> None:
        self.step(times)

    @rule(times=st.integers(1, 5))
    def step(self, times: int) -> None:
        for _ in range(times):
            running = {r.id: r.num_scheduled for r in self.engine.scheduler.running}
            report = self.engine.step()
            limits = self.engine.config
            assert report.num_tokens <= limits.max_num_batched_tokens
            assert len(self.engine.scheduler.running) <= limits.max_num_seqs
            if report.preempted and limits.mix_prefill_decode:
                assert {r.id for r in self.engine.scheduler.running} <= running.keys() | {
                    r.id for r in self.engine.scheduler.running if r.group
                }
            self.check_outputs()

    @precondition(lambda self: self.engine.has_unfinished)
    @rule(data=st.data())
    def abort(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.engine.scheduler.requests)))
        group = self.engine.scheduler.requests[name].group or name
        assert self.engine.abort(name)
        self.asked.pop(group, None)

    @precondition(lambda self: self.engine.scheduler.running)
    @rule(data=st.data())
    def fork(self, data: Any) -> None:
        parent = data.draw(st.sampled_from(sorted(r.id for r in self.engine.scheduler.running)))
        request = self.engine.scheduler.requests[parent]
        prompt = request.tokens[: request.prompt_len]
        try:
            child = self.engine.fork(parent)
        except ValueError:
            assert request.num_computed < len(request.tokens) - 1
        else:
            self.asked[child] = Asked(prompt, request.params.max_tokens, 1)

    @precondition(lambda self: self.engine.has_unfinished)
    @rule(when=st.sampled_from(["before", "after"]))
    def interrupt(self, when: str) -> None:
        self.runner.broken = when
        try:
            self.engine.step()
        except KeyboardInterrupt:
            assert not self.engine.scheduler.running
        else:
            raise AssertionError("the interrupt did not reach the caller")

    @rule()
    def reset_prefix_cache(self) -> None:
        assert self.engine.reset_prefix_cache() is not any(r.table for r in self.engine.scheduler.running)

    @rule(changes=st.fixed_dictionaries({}, optional={
        "max_num_seqs": st.integers(1, 6), "max_num_batched_tokens": st.integers(1, 40),
        "mix_prefill_decode": st.booleans(), "watermark": st.sampled_from([0.0, 0.3]),
        "policy": st.sampled_from(["fcfs", "priority", "longest-prefix", "shortest-prompt"]),
    }))  # fmt: skip
    def retune(self, changes: dict) -> None:
        self.engine.reconfigure(**changes)

    @rule(changes=st.fixed_dictionaries({}, optional={
        "block_size": BLOCK_SIZES, "num_blocks": st.integers(1, 60), "eviction": st.sampled_from(["lru", "fifo"]),
        "enable_prefix_caching": st.sampled_from([None, True, False]), "verify_prefix_hits": st.booleans(),
        "prefix_cache_blocks": st.sampled_from([None, 0, 3]), "allocator": st.sampled_from(["buddy", "first-fit"]),
        "kv_layout": st.sampled_from(["paged", "contiguous"]),
        "reservation": st.sampled_from(["max", "pow2", "oracle"]),
    }))  # fmt: skip
    def rebuild(self, changes: dict) -> None:
        before, config = self.engine.snapshot(), self.engine.config
        try:
            self.engine.reconfigure(**changes)
        except ValueError:
            assert (self.engine.snapshot(), self.engine.config) == (before, config)

    @rule()
    def record_anew(self) -> None:
        """A recorder that comes late knows as much as one that was always there."""
        self.recorder.detach()
        self.recorder = self.engine.record()
        late = Replay()
        for event in self.recorder.ticks[0]:
            late.apply(event)
        assert late.snapshot() == replace(self.engine.snapshot(), free=late.free)

    # -- what always holds ---------------------------------------------------------------------------------------------

    @invariant()
    def the_audit_is_clean(self) -> None:
        if hasattr(self, "engine"):
            assert self.engine.audit() == []

    @invariant()
    def the_events_tell_the_whole_story(self) -> None:
        if hasattr(self, "engine"):
            live = self.engine.snapshot()
            assert self.replay.snapshot() == replace(live, free=self.replay.free)

    @invariant()
    def blocks_add_up(self) -> None:
        if hasattr(self, "engine") and isinstance(cache := self.engine.scheduler.cache, KVManager):
            assert cache.pool.available + sum(ref > 0 for ref in cache.pool.ref) == self.engine.config.num_blocks
            assert sum(cache.pool.ref) == sum(len(r.table) for r in self.engine.scheduler.requests.values())

    def check_outputs(self) -> None:
        """After a step the free queue is told too, and time travel arrives where we are."""
        assert self.recorder.at(self.recorder.last_tick) == self.engine.snapshot()

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        for _ in range(5_000):
            if not self.engine.has_unfinished:
                break
            self.engine.step()
            assert self.engine.audit() == []
        assert not self.engine.has_unfinished, "somebody is never served"
        for name, asked in self.asked.items():
            output = self.engine.result(name)
            assert output.finished
            assert len(output.outputs) == asked.n
            for sample in output.outputs:
                assert sample.finish_reason == "length"
                assert len(sample.token_ids) == asked.many or sample.stop_reason in ("kv_capacity", "max_model_len")
                assert sample.token_ids == alone(asked.prompt, len(sample.token_ids))
        self.engine.close()


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=LIVES, stateful_step_count=RULES, deadline=None, derandomize=not LONG,
    suppress_health_check=list(HealthCheck), print_blob=True,
)  # fmt: skip

"""Metrics count what happened, from events alone: every slot is accounted for, and nobody is counted twice."""

import random
import re
from collections import Counter

import pytest

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.core.eviction import LRU
from minivllm.metrics import Metrics, quantile
from minivllm.runtime.sim import SimRunner

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
CONTIGUOUS = [(r, a) for r in ("max", "pow2", "oracle") for a in ("buddy", "first-fit")]
LAYOUTS = [
    {"kv_layout": "paged"},
    *({"kv_layout": "contiguous", "reservation": r, "allocator": a} for r, a in CONTIGUOUS),
]


def ids(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


def parts(step):
    return step.used + step.reserved + step.internal + step.external + step.cached + step.free


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: "-".join(layout.values()))
def test_every_slot_has_one_fate_and_used_is_what_the_snapshot_says(layout):
    rng = random.Random(1)
    with Engine(EngineConfig(block_size=4, num_blocks=24, max_model_len=48, max_num_seqs=5, **layout)) as engine:
        metrics = Metrics(engine)
        for _ in range(14):
            output = SamplingParams(temperature=0.0, max_tokens=rng.randint(1, 12), ignore_eos=True)
            engine.add(ids(rng.randint(0, 2) * 100, rng.randint(2, 20)), output)
        while engine.has_unfinished:
            engine.step()
            if rng.random() < 0.1 and engine.scheduler.running:
                engine.abort(rng.choice(engine.scheduler.running).id)
            step, seen = metrics.steps[-1], engine.snapshot()
            assert parts(step) == step.total == 96
            assert min(step) >= 0
            if not metrics.finished["abort"]:
                assert step.used == sum(block.filled for block in seen.blocks if block.ref)
                assert step.cached == 4 * seen.cached
            assert (step.running, step.waiting) == (len(seen.running), len(seen.waiting)) or metrics.finished["abort"]
        last = metrics.steps[-1]
        engine.step()
        assert metrics.steps[-1].held == 0, last


def test_a_last_block_is_reserved_as_far_as_its_request_will_fill_it():
    with Engine(EngineConfig(block_size=8, num_blocks=4)) as engine:
        metrics = Metrics(engine)
        engine.add(ids(0, 3), SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True))  # 5 positions in the end
        engine.step()
        assert metrics.steps[-1][3:6] == (3, 2, 3)  # used, reserved, internal


def test_a_reservation_splits_into_what_will_be_used_and_what_never_will():
    config = EngineConfig(block_size=1, num_blocks=64, kv_layout="contiguous", reservation="pow2", max_model_len=64)
    with Engine(config) as engine:
        metrics = Metrics(engine)
        engine.add(ids(0, 3), SamplingParams(temperature=0.0, max_tokens=9, ignore_eos=True))  # 3 + 16 of 32
        engine.step()
        step = metrics.steps[-1]
        assert (step.used, step.reserved, step.internal, step.external, step.free) == (3, 8, 8, 13, 32)
        assert step.rounding == 13


def test_free_memory_is_external_waste_only_while_somebody_is_refused():
    config = EngineConfig(block_size=1, num_blocks=48, kv_layout="contiguous", reservation="max", max_model_len=32)
    with Engine(config) as engine:
        metrics = Metrics(engine)
        engine.add(ids(0, 4), GREEDY)
        engine.step()
        assert (metrics.steps[-1].external, metrics.steps[-1].free) == (0, 16)
        engine.add(ids(0, 4), GREEDY)
        engine.step()
        assert (metrics.steps[-1].external, metrics.steps[-1].free) == (16, 0)
        assert metrics.refused == {"memory": 1}


def test_the_hit_rate_counts_prompt_tokens_of_new_requests():
    with Engine(EngineConfig(block_size=4, num_blocks=32)) as engine:
        metrics = Metrics(engine)
        for _ in range(3):
            engine.add(ids(0, 9), GREEDY)
            engine.run()
        assert (metrics.hits, metrics.queried) == (16, 27)
        assert metrics.hit_rate == pytest.approx(16 / 27)


def test_with_the_cache_off_nothing_is_queried():
    with Engine(EngineConfig(block_size=4, num_blocks=32, enable_prefix_caching=False)) as engine:
        metrics = Metrics(engine)
        engine.add(ids(0, 9), GREEDY)
        engine.run()
        assert (metrics.hits, metrics.queried, metrics.hit_rate, metrics.prompt_tokens) == (0, 0, 0.0, 9)


def test_a_resumed_request_hits_its_own_blocks_and_no_statistics():
    """Scenario: two requests, a pool of 7 blocks of 4: one preemption, whose resume reuses 8 of 13 tokens."""
    with Engine(EngineConfig(block_size=4, num_blocks=7)) as engine:
        metrics = Metrics(engine)
        for start in (0, 100):
            engine.add(ids(start, 8), SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True))
        engine.run()
        assert (metrics.preemptions, metrics.hits, metrics.queried) == (1, 0, 16)
        assert (metrics.generation_tokens, metrics.lost_tokens > 0) == (24, True)


def test_times_are_those_of_the_clock_and_ticks_those_of_the_engine():
    now = [10.0]
    with Engine(EngineConfig(block_size=4, num_blocks=32, max_num_batched_tokens=4)) as engine:
        metrics = Metrics(engine, clock=lambda: now[0])
        engine.add(ids(0, 8), SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True))
        while engine.has_unfinished:
            now[0] += 1
            engine.step()
        assert metrics.ttft == [(2, 2.0)]  # two chunks of four
        assert metrics.tpot == [(1.0, 1.0)]
        assert metrics.throughput == pytest.approx(3 / 4)


def test_forks_share_their_last_block_and_count_it_once():
    with Engine(EngineConfig(block_size=8, num_blocks=16)) as engine:
        metrics = Metrics(engine)
        name = engine.add(ids(0, 11), GREEDY)
        engine.step()
        for _ in range(2):
            engine.fork(name)
        while engine.has_unfinished:
            engine.step()
            assert parts(metrics.steps[-1]) == 128
            assert metrics.steps[-1].used == sum(b.filled for b in engine.snapshot().blocks if b.ref)


def test_metrics_that_come_late_know_the_pool_and_count_from_then_on():
    with Engine(EngineConfig(block_size=4, num_blocks=32)) as engine:
        early = Metrics(engine)
        engine.add(ids(0, 9), GREEDY)
        engine.step()
        engine.add(ids(50, 6), GREEDY)
        late = Metrics(engine)
        engine.run()
        assert [step[2:] for step in late.steps] == [step[2:] for step in early.steps[1:]]
        assert (late.generation_tokens, late.prompt_tokens, len(late.ttft)) == (15, 6, 1)


def test_a_rebuilt_pool_is_empty_and_its_requests_wait():
    with Engine(EngineConfig(block_size=4, num_blocks=32)) as engine:
        metrics = Metrics(engine)
        engine.add(ids(0, 9), GREEDY)
        engine.step()
        engine.reconfigure(block_size=8)
        engine.run()
        assert all(parts(step) == step.total == 128 for step in metrics.steps)
        assert metrics.finished == {"length": 1}


def test_detached_metrics_count_no_more_and_cost_nothing():
    with Engine(EngineConfig(block_size=4, num_blocks=8)) as engine:
        metrics = Metrics(engine)
        metrics.detach()
        assert not engine.bus.active
        engine.add(ids(0, 4), GREEDY)
        engine.run()
        assert metrics.steps == []


def test_the_table_is_printed_before_and_after_anything_happened():
    with Engine(EngineConfig(block_size=4, num_blocks=8)) as engine:
        metrics = Metrics(engine)
        assert "nothing yet" in str(metrics)
        engine.add(ids(0, 9), GREEDY)
        engine.run()
        lines = str(metrics).splitlines()
        assert "prompt tokens hit            0 of 9 (0.0%), 0 evictions" in lines
        assert "pool held at the peak        16 of 32 slots" in lines
        assert max(map(len, lines)) <= 88


def test_prometheus_text_is_well_formed_and_its_histograms_are_cumulative():
    with Engine(EngineConfig(block_size=4, num_blocks=32)) as engine:
        metrics = Metrics(engine)
        for _ in range(2):
            engine.add(ids(0, 9), GREEDY)
            engine.run()
        text = metrics.prometheus()
    names = [
        "num_requests_running", "gpu_cache_usage_perc", "prefix_cache_queries_total", "prefix_cache_hits_total",
        "generation_tokens_total", "time_to_first_token_seconds", "time_per_output_token_seconds",
    ]  # fmt: skip
    assert all(f"# TYPE minivllm:{name} " in text for name in names)
    assert "\nminivllm:prefix_cache_hits_total 8\n" in text
    assert 'minivllm:request_success_total{finished_reason="length"} 2' in text
    sample = re.compile(r'minivllm:[a-z_]+(\{[a-z_]+="[^"]*"\})? -?[0-9.e+-]+')
    assert all(line.startswith("# TYPE minivllm:") or sample.fullmatch(line) for line in text.splitlines())
    buckets = [int(n) for n in re.findall(r"first_token_seconds_bucket\{.*\} (\d+)", text)]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 2


@pytest.mark.parametrize(("q", "value"), [(0.0, 1), (0.5, 2), (0.75, 3), (0.99, 4), (1.0, 4)])
def test_a_quantile_is_a_value_that_was_measured(q, value):
    assert quantile([4, 1, 3, 2], q) == value


def test_a_quantile_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one value"):
        quantile([], 0.5)


class FailsOnce(SimRunner):
    """Cut short in its fourth step."""

    steps = 0

    def launch(self, plan):
        self.steps += 1
        if self.steps == 4:
            raise RuntimeError("out of order")
        return super().launch(plan)


class ForgetsOnce(LRU):
    """Fails in the middle of the bookkeeping, once."""

    failed = False

    def insert(self, block):
        if not ForgetsOnce.failed:
            ForgetsOnce.failed = True
            raise RuntimeError("out of order")
        super().insert(block)


@pytest.mark.parametrize("broken", ["runner", "eviction"])
def test_what_an_engine_tells_after_a_failure_is_counted_once(broken):
    parts = {"runner": FailsOnce(32, 4)} if broken == "runner" else {"eviction": ForgetsOnce}
    ForgetsOnce.failed = False
    engine = Engine(EngineConfig(block_size=4, num_blocks=32), **parts)
    metrics, counted = Metrics(engine), Counter()
    engine.bus.subscribe(lambda event: counted.update([event.kind]))
    for n in (5, 7, 9):
        engine.add(list(range(n)), SamplingParams(max_tokens=n - 1, temperature=0))
    failures = 0
    while engine.has_unfinished:
        try:
            engine.step()
        except RuntimeError:
            failures += 1
    assert failures == counted["fail"] == 1
    assert metrics.finished == {"length": 3}
    assert metrics.prompt_tokens == 5 + 7 + 9
    assert metrics.generation_tokens == 4 + 6 + 8
    assert len(metrics.ttft) == len(metrics.tpot) == 3
    assert metrics.preemptions == 0


def test_who_is_aborted_after_a_failure_is_counted_and_nobody_is_remembered():
    engine = Engine(EngineConfig(block_size=4, num_blocks=32), runner=FailsOnce(32, 4))
    metrics = Metrics(engine)
    names = [engine.add(list(range(n)), SamplingParams(max_tokens=n, temperature=0)) for n in (2, 20, 30)]
    with pytest.raises(RuntimeError):
        engine.run(max_steps=10)
    for name in names:
        engine.abort(name)
    assert metrics.finished == {"length": 1, "abort": 2}
    assert not metrics._timing

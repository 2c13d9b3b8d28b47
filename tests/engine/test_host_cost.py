"""What a step costs on the host before any device works: reported, not asserted (`pytest -s`, or the XML report).

256 decoding requests, blocks of 16. On a GPU this must hide behind one decode step of a few milliseconds.
"""

import random
import statistics
import time
from collections.abc import Callable

import pytest
from simulated import simulate, tokens_of

from minivllm.core.kv_manager import KVManager
from minivllm.core.scheduler import Scheduler
from minivllm.request import Request, SamplingParams

SEATS, STEPS = 256, 200


def decoding(num_blocks: int) -> Scheduler:
    """A scheduler over `num_blocks` blocks with every seat decoding."""
    dice = random.Random(0)
    scheduler = Scheduler(KVManager(num_blocks, 16), max_num_seqs=SEATS, max_num_batched_tokens=1 << 20)
    for number in range(SEATS):
        prompt = [dice.randrange(32_000) for _ in range(100 + number % 16)]
        scheduler.add(Request(str(number), prompt, SamplingParams(max_tokens=None), limit=1 << 20))
    plan = scheduler.plan()
    scheduler.collect(plan, [0] * len(plan.rows))
    return scheduler


def median_ms(scheduler: Scheduler) -> tuple[float, float]:
    """Median milliseconds of `plan()` and of `collect()`."""
    plans, collects, clock = [], [], time.perf_counter
    for step in range(STEPS):
        started = clock()
        plan = scheduler.plan()
        planned = clock()
        scheduler.collect(plan, [step] * SEATS)
        plans.append(planned - started)
        collects.append(clock() - planned)
        assert plan.decode_only
        assert len(plan.rows) == SEATS
    return statistics.median(plans) * 1e3, statistics.median(collects) * 1e3


@pytest.mark.parametrize("num_blocks", [10_000, 100_000, 1_000_000])
def test_the_host_cost_of_a_step_is_reported(num_blocks: int, record_property: Callable[[str, object], None]) -> None:
    plan, collect = median_ms(decoding(num_blocks))
    record_property("plan_ms", plan)
    record_property("collect_ms", collect)
    print(f"\n{SEATS} decodes, {num_blocks:>9,} blocks: plan {plan:.3f} ms + collect {collect:.3f} ms")


def test_the_simulation_serves_a_thousand_requests(record_property: Callable[[str, object], None]) -> None:
    engine = simulate(bs=16, blocks=4000, max_num_seqs=256)
    for number in range(1000):
        engine.add([number, *range(49)], SamplingParams(max_tokens=200, ignore_eos=True))
    began = time.perf_counter()
    outputs = engine.run()
    seconds = time.perf_counter() - began
    record_property("seconds", seconds)
    print(f"\n1,000 requests of 200 tokens: {seconds:.2f} s, {engine.tick} ticks")
    assert len(outputs) == 1000 and all(len(tokens_of(output)) == 200 for output in outputs)

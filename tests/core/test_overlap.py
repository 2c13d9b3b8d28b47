"""One ticket in flight: the next step is planned before the last one's tokens are known, and nobody can tell.

`plan` and `collect` are driven by hand here, with a device that answers one step late.
"""

import random
from collections import deque
from typing import Any

import pytest
from simulated import Delayed, alone, greedy, simulate, tokens_of

from minivllm import Engine, SamplingParams
from minivllm.core.plan import Plan
from minivllm.request import Request


class Late:
    """Launches every plan at once and collects it one step later."""

    def __init__(self, **options: Any) -> None:
        self.engine = simulate(**options)
        self.scheduler, self.runner = self.engine.scheduler, self.engine.runner
        self.flying: deque[tuple[Plan, Any]] = deque()
        self.said: dict[str, list[int]] = {}
        self.ended: list[Request] = []

    def launch(self) -> Plan:
        plan = self.scheduler.plan()
        self.flying.append((plan, self.runner.launch(plan)))
        return plan

    def collect(self) -> dict[str, int]:
        plan, ticket = self.flying.popleft()
        collected = self.scheduler.collect(plan, self.runner.wait(ticket).tokens)
        self.ended += collected.finished
        for name, token in collected.tokens.items():
            self.said.setdefault(name, []).append(token)
        return collected.tokens

    def step(self) -> Plan:
        plan = self.launch()
        if len(self.flying) > 1:
            self.collect()
        assert self.engine.audit() == []
        return plan

    def finish(self) -> None:
        for _ in range(3_000):
            if not self.scheduler.requests and not self.flying:
                return
            self.step()
            if not self.scheduler.requests:
                while self.flying:
                    self.collect()
        raise AssertionError("somebody is never served")


def test_the_second_token_is_planned_before_the_first_is_known() -> None:
    late = Late()
    name = late.engine.add(range(5), greedy(3))
    late.launch()
    (row,) = late.launch().rows
    assert (row.start, row.count, row.sample) == (5, 1, True)
    assert late.scheduler.requests[name].num_pending == 2
    late.finish()
    assert late.said[name] == alone(range(5), 3)


def test_no_step_is_planned_past_the_limit() -> None:
    late = Late()
    late.engine.add(range(5), greedy(2))
    assert [len(late.launch().rows) for _ in range(4)] == [1, 1, 0, 0]


def test_late_tokens_of_an_aborted_request_do_not_reach_one_that_took_its_name() -> None:
    late = Late(bs=4, blocks=8)
    late.engine.add(range(5), greedy(9), request_id="x")
    late.launch()
    late.launch()
    late.engine.abort("x")
    late.engine.add(range(50, 59), greedy(2), request_id="x")
    assert late.collect() == {}
    late.launch()
    assert late.collect() == {}
    late.finish()
    assert late.said["x"] == alone(range(50, 59), 2)
    assert late.engine.scheduler.cache.pool.available == 8  # type: ignore[attr-defined]


def test_late_tokens_of_a_preempted_request_are_dropped_and_sampled_again() -> None:
    late = Late(bs=4, blocks=7)
    a, b = late.engine.add(range(8), greedy(12)), late.engine.add(range(50, 58), greedy(12))
    preempted: list[str] = []
    while not preempted:
        preempted += late.step().preempted
    assert preempted == [b]
    late.finish()
    assert late.said[a] == alone(range(8), 12)
    assert late.said[b] == alone(range(50, 58), 12)


def test_a_row_in_flight_behind_an_end_token_is_dropped() -> None:
    says = alone(range(5), 5)
    late = Late(bs=4)
    name = late.engine.add(range(5), greedy(9, stop_token_ids=[says[2]]))
    late.finish()
    assert late.said[name] == says[:3]
    assert [request.finish_reason for request in late.ended] == ["stop"]


def test_a_full_block_is_published_only_when_its_results_are_in() -> None:
    late = Late(bs=4)
    late.engine.add(range(8), greedy(2))
    late.launch()
    twin = late.engine.add(range(9), greedy(2))
    late.launch()
    assert late.scheduler.requests[twin].num_cached == 0
    late.finish()
    assert late.said[twin] == alone(range(9), 2)


def random_life(seed: int) -> None:
    dice = random.Random(seed)
    late = Late(
        bs=dice.choice([1, 2, 4, 8]), blocks=dice.randint(6, 30), budget=dice.choice([3, 8, 64]),
        max_num_seqs=dice.randint(1, 6), mix_prefill_decode=dice.random() < 0.7, max_model_len=64,
        eviction=dice.choice(["lru", "fifo"]), policy=dice.choice(["fcfs", "shortest-prompt", "longest-prefix"]),
    )  # fmt: skip
    prompts: dict[str, list[int]] = {}
    for _ in range(60):
        act = dice.random()
        if act < 0.3:
            prompt = dice.choice([[], list(range(9)), [3] * 12]) + [
                dice.randrange(3) for _ in range(dice.randint(1, 6))
            ]
            try:
                name = late.engine.add(prompt, greedy(dice.randint(1, 12)), request_id=dice.choice([None, "x", "y"]))
            except ValueError:
                continue
            prompts[name] = prompt
            late.said.pop(name, None)
        elif act < 0.38 and late.scheduler.requests:
            name = dice.choice(sorted(late.scheduler.requests))
            late.engine.abort(name)
            del prompts[name]
        else:
            late.step()
    late.finish()
    for name, prompt in prompts.items():
        assert late.said[name] == alone(prompt, len(late.said[name]), bs=16)
    assert late.scheduler.cache.pool.available == late.engine.config.num_blocks  # type: ignore[attr-defined]


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_overlapped_steps_give_the_tokens_of_steps_in_turn_whatever_happens(start: int) -> None:
    for seed in range(start, start + 10):
        random_life(seed)


# -- the same through run() --------------------------------------------------------------------------------------------


def talk(engine: Engine) -> dict[str, list[list[int]]]:
    """A mixed load: shared prefixes, samples, end tokens; what everybody said."""
    for k in range(12):
        stop = [alone([*range(9), k], 4)[3]] if k % 3 == 0 else []
        engine.add([*range(9), k], greedy(3 + k, n=1 + k % 3, stop_token_ids=stop))
    return {output.request_id: [sample.token_ids for sample in output.outputs] for output in engine.run()}


@pytest.mark.parametrize("blocks", [200, 12])
def test_run_keeps_one_ticket_in_flight_and_says_the_same(blocks: int) -> None:
    device = Delayed(blocks, 4)
    late, prompt = simulate(bs=4, blocks=blocks, runner=device), simulate(bs=4, blocks=blocks)
    assert talk(late) == talk(prompt)
    assert device.most_in_flight == 2
    assert not device.in_flight
    assert late.audit() == []
    late.step()
    assert not device.tokens  # the next plan tells the runner of everyone who left


def test_run_overlaps_only_where_it_may() -> None:
    for listening, options in ((True, {}), (False, {"async_scheduling": False})):
        device = Delayed(64, 4)
        engine = simulate(runner=device, **options)
        if listening:
            engine.record()
        talk(engine)
        assert device.most_in_flight == 1


def test_an_interrupt_with_a_ticket_in_flight_loses_nothing() -> None:
    class Breaking(Delayed):
        launches = 0

        def launch(self, plan: Plan) -> Any:
            self.launches += 1
            if self.launches == 6:
                self.in_flight.clear()
                raise KeyboardInterrupt
            return super().launch(plan)

    engine = simulate(bs=4, blocks=30, runner=Breaking(30, 4))
    names = [engine.add(range(10 * k, 10 * k + 8), greedy(9)) for k in range(3)]
    sampled = engine.add(range(7), SamplingParams(temperature=1, seed=3, max_tokens=9))
    with pytest.raises(KeyboardInterrupt):
        engine.run()
    assert engine.audit() == []
    engine.run()
    assert [tokens_of(engine.result(name)) for name in names] == [alone(range(10 * k, 10 * k + 8), 9) for k in range(3)]
    other = simulate()
    again = other.add(range(7), SamplingParams(temperature=1, seed=3, max_tokens=9))
    other.run()
    assert tokens_of(engine.result(sampled)) == tokens_of(other.result(again))

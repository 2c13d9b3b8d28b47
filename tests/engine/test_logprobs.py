"""A log-probability belongs to its token: as many of them, in the same order, whatever happened on the way."""

import random

import pytest
from simulated import finish, greedy, simulate

from minivllm import SamplingParams
from minivllm.core.eviction import LRU
from minivllm.core.plan import Plan
from minivllm.output import Logprob
from minivllm.runtime.sim import SimRunner
from minivllm.runtime.ticket import StepResult, TokenLogprob


class Reporting(SimRunner):
    """Reports the token itself as the log-probability's token, for every row that samples."""

    def launch(self, plan: Plan) -> StepResult:
        result = super().launch(plan)
        pairs = zip(plan.rows, result.tokens, strict=True)
        return StepResult(
            result.tokens, {row.request_id: TokenLogprob(token, -1.0, 1, ()) for row, token in pairs if row.sample}
        )


class ReportingAhead(Reporting):
    """The same with a step in flight."""

    asynchronous = True


def aligned(output):
    return all([token for entry in one.logprobs for token in entry] == one.token_ids for one in output.outputs)


@pytest.mark.parametrize("runner", [Reporting, ReportingAhead])
@pytest.mark.parametrize("seed", range(12))
def test_they_stay_aligned_under_preemption_samples_stops_and_reused_names(runner, seed):
    rng = random.Random(seed)
    blocks = rng.choice([8, 10, 14])
    engine = simulate(bs=4, blocks=blocks, runner=runner(blocks, 4), budget=rng.choice([3, 16, 8192]))
    for round_ in range(3):
        for name in ("first", "second", "third"):
            prompt = [rng.randrange(1000) for _ in range(rng.randint(1, 8))]
            stops = list(range(0, 32_000, 9)) if rng.random() < 0.5 else []  # every ninth token ends it
            params = SamplingParams(
                temperature=rng.choice([0.0, 1.0]), seed=round_, n=rng.choice([1, 1, 2]), max_tokens=rng.randint(1, 12),
                logprobs=0, stop_token_ids=stops,
            )  # fmt: skip
            engine.add(prompt, params, request_id=name)
        outputs = engine.run()
        assert len(outputs) == 3
        assert all(aligned(output) for output in outputs)
    assert not engine._results._logprobs


@pytest.mark.parametrize("kind", ["token", "publish", "finish", "release"])
@pytest.mark.parametrize("at", range(4))
def test_they_stay_aligned_when_an_interrupt_comes_while_results_are_booked(kind, at):
    engine = simulate(bs=4, runner=Reporting(64, 4))
    left = [at]

    def listen(event):
        if event.kind == kind:
            left[0] -= 1
            if left[0] == -1:
                raise KeyboardInterrupt

    for n in range(3):
        engine.add(list(range(10 * n, 10 * n + 5)), greedy(6, logprobs=0))
    engine.bus.subscribe(listen)
    interrupts = 0
    while engine.has_unfinished:
        try:
            engine.step()
        except KeyboardInterrupt:
            interrupts += 1
    assert interrupts == (kind != "finish" or at < 3)  # three of them finish
    assert engine.audit() == []
    for name in "ABC":
        output = engine.result(name)
        assert len(output.outputs[0].token_ids) == 6
        assert aligned(output)


def test_a_fork_has_those_of_the_tokens_it_begins_with():
    engine = simulate(runner=Reporting(64, 4))
    parent = engine.add([1, 2, 3], greedy(8, logprobs=0))
    for _ in range(4):
        engine.step()
    child = engine.fork(parent)
    finish(engine)
    for name in (parent, child):
        assert aligned(engine.result(name))
        assert len(engine.result(name).outputs[0].token_ids) == 8
    assert engine.result(child).num_cached_tokens <= 3  # of the prompt


def test_what_a_reset_that_failed_has_touched_is_made_anew():
    class Fails(LRU):
        broken = False

        def pop(self):
            block = super().pop()
            if Fails.broken:
                Fails.broken = False
                raise KeyboardInterrupt
            return block

    engine = simulate(bs=2, blocks=8, eviction=Fails)
    engine.add([1, 2, 3, 4, 5], greedy(2))
    engine.run()
    Fails.broken = True
    with pytest.raises(KeyboardInterrupt):
        engine.reset_prefix_cache()
    assert engine.audit() == []
    engine.add([9] * 15, greedy(1))
    assert len(engine.run(max_steps=50)) == 1


def test_all_samples_of_an_aborted_request_end_though_the_first_one_fails_on_its_way_out():
    class Fails(LRU):
        def insert(self, block):
            raise ZeroDivisionError

    engine = simulate(eviction=Fails)
    name = engine.add(list(range(9)), SamplingParams(n=3, max_tokens=20, temperature=1.0, seed=1))
    for _ in range(3):
        engine.step()
    assert len(engine.scheduler.requests) == 3
    with pytest.raises(ZeroDivisionError):
        engine.abort(name)
    assert not engine.has_unfinished
    assert engine.audit() == []
    assert [one.finish_reason for one in engine.result(name).outputs] == ["abort"] * 3


def test_a_runner_that_reports_none_costs_nobody_the_answer():
    engine = simulate()
    name = engine.add([1, 2, 3], greedy(3, logprobs=1))
    finish(engine)
    assert engine.result(name).outputs[0].logprobs == []


def test_they_come_as_in_vllm_by_token_id_the_token_that_stands_there_first():
    class Ranked(SimRunner):
        def launch(self, plan):
            result = super().launch(plan)
            entry = TokenLogprob(result.tokens[0], -2.5, 7, ((5, -0.5), (6, -1.5)))
            known = {position: TokenLogprob(9, -0.25, 1, ((9, -0.25),)) for position in (1, 2)}
            return StepResult(result.tokens, {"A": entry}, {"A": known})

    engine = simulate(runner=Ranked(64, 4))
    engine.add([1, 9, 9], greedy(1, logprobs=2, prompt_logprobs=1))
    (output,) = engine.run()
    (said,) = output.outputs
    assert [list(entry) for entry in said.logprobs] == [[said.token_ids[0], 5, 6]]
    assert [(e.logprob, e.rank, e.decoded_token) for e in said.logprobs[0].values()] == [
        (-2.5, 7, None), (-0.5, 1, None), (-1.5, 2, None)
    ]  # fmt: skip
    assert said.cumulative_logprob == -2.5
    assert output.prompt_logprobs == [None, {9: Logprob(-0.25, 1)}, {9: Logprob(-0.25, 1)}]

"""Whoever gets an output may do anything to the engine before the next one; with a step in flight it is settled first."""

import pytest

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.metrics import Metrics
from minivllm.runtime.sim import SimRunner


class Ahead(SimRunner):
    """Simulates, and lets the engine launch a step before it has the last one's tokens, as a GPU does."""

    asynchronous = True


def engine(runner=Ahead, **settings):
    config = EngineConfig(**{"block_size": 4, "num_blocks": 64, **settings})
    return Engine(config, runner=runner(config.num_blocks, config.block_size))


def ask(made, *outputs, **params):
    return [
        made.add(
            [5 * n + 1, 5 * n + 2, 5 * n + 3],
            SamplingParams(temperature=0, max_tokens=length, ignore_eos=True, **params),
        )
        for n, length in enumerate(outputs)
    ]


def alone(outputs):
    """What each request says with nobody meddling."""
    made = engine(SimRunner)
    ask(made, *outputs)
    return {output.request_id: output.outputs[0].token_ids for output in made.run()}


LENGTHS = (3, 8, 5, 21)


def step(made, _):
    made.step()


def run_on(made, _):
    made.run()


def nest(made, _):
    for _ in made.outputs():
        made.step()


def abort_another(made, output):
    made.abort("D")


def change_blocks(made, _):
    made.reconfigure(block_size=2)


def reset(made, _):
    made.reset_prefix_cache()


@pytest.mark.parametrize("meddle", [step, run_on, nest, abort_another, change_blocks, reset])
@pytest.mark.parametrize("runner", [SimRunner, Ahead])
def test_texts_are_right_and_the_books_in_order_whatever_happens_between_two_outputs(meddle, runner):
    made = engine(runner)
    ask(made, *LENGTHS)
    for output in made.outputs():
        meddle(made, output)
    assert not made.has_unfinished
    assert made.audit() == []
    said = {name: made.result(name).outputs[0] for name in "ABCD"}
    expected = alone(LENGTHS)
    for name, one in said.items():
        assert one.token_ids == expected[name][: len(one.token_ids)]
        assert one.finish_reason == "abort" or one.token_ids == expected[name]


@pytest.mark.parametrize("runner", [SimRunner, Ahead])
def test_leaving_the_loop_early_loses_no_cached_prefix(runner):
    made = engine(runner)
    made.add(list(range(40)), SamplingParams(max_tokens=2, temperature=0, ignore_eos=True))
    made.add(list(range(100, 110)), SamplingParams(max_tokens=30, temperature=0, ignore_eos=True))
    for _ in made.outputs():
        break
    again = made.add([*range(40), 7], SamplingParams(max_tokens=1, temperature=0))
    made.run()
    assert made.result(again).num_cached_tokens == 40


@pytest.mark.parametrize("runner", [SimRunner, Ahead])
def test_closing_in_the_loop_is_answered_in_words(runner):
    made = engine(runner)
    ask(made, *LENGTHS)
    outputs = made.outputs()
    next(outputs)
    made.close()
    with pytest.raises(RuntimeError, match="is closed"):
        next(outputs)
    for call in (made.audit, made.step, lambda: made.result("A"), made.run):
        with pytest.raises(RuntimeError, match="is closed"):
            call()


def test_a_step_in_flight_is_not_run_into():
    made = engine()
    ask(made, *LENGTHS)
    ahead = made.outputs(ahead=True)
    next(ahead)
    for call in (made.step, made.run, lambda: made.reconfigure(block_size=8), lambda: next(made.outputs())):
        with pytest.raises(RuntimeError, match="a step is in flight"):
            call()
    rest = [output.request_id for output in ahead]
    assert sorted(["A", *rest]) == ["A", "B", "C", "D"]
    assert {name: made.result(name).outputs[0].token_ids for name in "ABCD"} == alone(LENGTHS)
    assert made.audit() == []


@pytest.mark.parametrize("runner", [SimRunner, Ahead])
def test_more_requests_than_are_kept_may_end_in_one_step(runner):
    made = engine(runner, num_blocks=3000, max_num_seqs=1500, max_num_batched_tokens=100_000)
    for n in range(1100):
        made.add([n + 1, 2, 3], SamplingParams(max_tokens=1))
    assert len({output.request_id for output in made.run()}) == 1100


@pytest.mark.parametrize(
    "settings", [{"max_num_batched_tokens": 1}, {"mix_prefill_decode": False}, {"max_num_batched_tokens": 3}, {}]
)
@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("runner", [SimRunner, Ahead])
def test_samples_of_one_prompt_never_write_into_a_block_that_others_can_hit(settings, n, runner):
    made = engine(runner, **settings)
    for length in range(1, 10):
        params = SamplingParams(temperature=1.0, seed=length, n=n, max_tokens=1 + length % 3)
        made.add(list(range(10 * length, 11 * length)), params)
        made.add([7, 8, 9], SamplingParams(max_tokens=2))
        for output in made.run():
            assert made.audit() == []
            for completion in output.outputs:
                prompt = [*output.prompt_token_ids, *completion.token_ids, 5]
                assert goes_on(made, prompt) == goes_on(engine(SimRunner), prompt)


def goes_on(made, prompt):
    name = made.add(prompt, SamplingParams(temperature=0, max_tokens=4))
    made.run()
    return made.result(name).outputs[0].token_ids


def test_a_stream_has_all_its_text_though_others_stepped_and_samples_are_still_to_end():
    said = {}
    for runner in (SimRunner, Ahead):
        made = engine(runner)
        model_text = made.add([7, 7, 7, 11], SamplingParams(max_tokens=5, n=2, temperature=0.0))
        made.add([3, 3], SamplingParams(max_tokens=9, temperature=0.0))
        stream = made.stream(model_text)
        for _ in made.outputs():
            pass
        said[runner] = list(stream)
    assert said[SimRunner] == said[Ahead]


@pytest.mark.parametrize("limit", [0, 1, None])
def test_what_is_given_up_for_a_copy_is_counted_and_kept_within_the_limit(limit):
    for seed in range(60):
        made = engine(SimRunner, block_size=2, num_blocks=40, max_num_batched_tokens=2, prefix_cache_blocks=limit)
        metrics = Metrics(made)
        for n in (1, 2, 3):
            made.add([seed, 1], SamplingParams(temperature=1.0, seed=seed, n=n, max_tokens=2))
        made.run()
        snapshot = made.snapshot()
        now = metrics.steps[-1]
        assert (now.held, now.cached) == (0, snapshot.cached * 2)
        assert limit is None or snapshot.cached <= limit
        assert made.audit() == []


@pytest.mark.parametrize("ahead", [False, True])
def test_who_begins_to_listen_between_two_outputs_hears_of_every_tick_from_then_on(ahead):
    made, told = engine(), None
    ask(made, *LENGTHS)
    for _ in made.outputs(ahead=ahead):
        if told is None:
            told, before = made.record(), made.tick
    assert told.last_tick in (made.tick - before, made.tick - before + 1)  # the end of a step that was in flight
    assert told.last_tick > 10
    assert told.at(told.last_tick) == made.snapshot()
    assert {e.request for tick in told.ticks for e in tick if e.kind == "finish"} == set("ABCD")


def test_who_leaves_early_with_a_step_in_flight_loses_neither_cache_nor_tokens():
    made = engine()
    short, long = [*range(40)], [*range(100, 110)]
    for prompt, length in ((short, 2), (long, 30)):
        made.add(prompt, SamplingParams(temperature=0, max_tokens=length, ignore_eos=True))
    for _ in made.outputs(ahead=True):
        break
    running = made.scheduler.running[0]
    assert running.num_preemptions == 0 and running.num_pending == 0
    assert made.audit() == []
    again = made.add([*short, 7], SamplingParams(temperature=0, max_tokens=1))
    made.run()
    assert made.result(again).num_cached_tokens == 40
    undisturbed = engine(SimRunner)
    undisturbed.add(long, SamplingParams(temperature=0, max_tokens=30, ignore_eos=True))
    assert made.result("B").outputs[0].token_ids == undisturbed.run()[0].outputs[0].token_ids

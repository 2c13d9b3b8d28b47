"""Continuous batching as its users see it: chunks, preemption, limits, aborts. Numbers come from arithmetic."""

from typing import Any

import pytest
from simulated import (
    alone,
    available,
    finish,
    greedy,
    published,
    record_plans,
    run,
    simulate,
    table,
    tokens_of,
    used,
)

from minivllm import Engine, SamplingParams
from minivllm.events import Preempt

LONG = list(range(17))


def drive(engine: Engine, *prompts: Any, max_tokens: int) -> tuple[list[list[int]], int, int]:
    """Tokens of each prompt, steps, and preemptions, of all prompts added at once."""
    names = [engine.add(prompt, greedy(max_tokens)) for prompt in prompts]
    steps = finish(engine)
    outputs = [engine.result(name) for name in names]
    return [tokens_of(o) for o in outputs], steps, sum(o.num_preemptions for o in outputs)


# -- chunked prefill ---------------------------------------------------------------------------------------------------


def test_a_long_prompt_is_computed_in_chunks_and_speaks_only_after_the_last() -> None:
    engine = simulate(bs=4, budget=6)
    plans, seen = record_plans(engine), []
    engine.add(LONG, greedy(1))
    while engine.has_unfinished:
        report = engine.step()
        seen.append((plans[-1].num_tokens, published(engine), len(report.tokens)))
    assert seen == [(6, 1, 0), (6, 3, 0), (5, 4, 1)]


def test_chunks_begin_where_the_hit_ends() -> None:
    engine = simulate(bs=4, budget=6)
    run(engine, LONG[:10])
    plans = record_plans(engine)
    output = run(engine, LONG)
    assert output.num_cached_tokens == 8
    assert [plan.num_tokens for plan in plans] == [6, 3]
    assert tokens_of(output) == alone(LONG)


def test_a_late_copy_is_credited_only_with_what_is_computed() -> None:
    engine = simulate(bs=4, budget=6)
    first = engine.add(LONG, greedy(2))
    engine.step()
    engine.step()
    second = engine.add(LONG, greedy(2))
    finish(engine)
    assert engine.result(second).num_cached_tokens <= 12
    assert tokens_of(engine.result(first)) == tokens_of(engine.result(second)) == alone(LONG, 2)


# -- preemption --------------------------------------------------------------------------------------------------------

A, B = list(range(8)), list(range(50, 58))


def test_a_preempted_request_loses_time_and_nothing_else() -> None:
    tight, roomy = simulate(bs=4, blocks=7), simulate(bs=4, blocks=10)
    tight_tokens, tight_steps, tight_preemptions = drive(tight, A, B, max_tokens=12)
    roomy_tokens, roomy_steps, roomy_preemptions = drive(roomy, A, B, max_tokens=12)
    assert (tight_steps, tight_preemptions) == (19, 1)
    assert (roomy_steps, roomy_preemptions) == (12, 0)
    assert tight_tokens == roomy_tokens == [alone(A, 12), alone(B, 12)]
    assert [len(tokens) for tokens in tight_tokens] == [12, 12]


def test_taking_up_its_own_blocks_again_is_not_a_hit_of_the_user() -> None:
    engine = simulate(bs=4, blocks=7)
    plans = record_plans(engine)
    a, b = engine.add(A, greedy(12)), engine.add(B, greedy(12))
    finish(engine)
    assert engine.result(a).num_cached_tokens == engine.result(b).num_cached_tokens == 0
    resumed = [row for plan in plans for row in plan.rows if row.request_id == b and row.count > 1][1]
    assert resumed.start == 8  # 8 of its 13 tokens are still in the cache
    assert resumed.start + resumed.count == 13


def test_a_preemption_storm_stays_bounded_and_every_victim_is_told() -> None:
    engine = simulate(bs=4, blocks=8)
    recorder = engine.record()
    prompts = [list(range(10 * k, 10 * k + 4)) for k in range(6)]
    names = [engine.add(prompt, greedy(16)) for prompt in prompts]
    silent, steps = 0, 0
    while engine.has_unfinished:
        report = engine.step()
        steps += 1
        silent = 0 if report.tokens else silent + 1
        assert silent < 2
        told = [e.request for e in recorder.events_of(recorder.last_tick) if isinstance(e, Preempt)]
        assert tuple(told) == report.preempted
    assert steps <= 96
    assert [tokens_of(engine.result(name)) for name in names] == [alone(prompt, 16) for prompt in prompts]


def test_a_seed_belongs_to_its_request() -> None:
    sampled = SamplingParams(temperature=0.8, seed=42, max_tokens=16)
    other = SamplingParams(temperature=1.0, max_tokens=16)

    def says(neighbours: list[tuple[int, SamplingParams]], position: int, blocks: int = 64) -> tuple[list[int], int]:
        engine = simulate(bs=4, blocks=blocks)
        queue = [(list(range(n, n + 8)), params) for n, params in neighbours]
        queue.insert(position, (A, sampled))
        names = [engine.add(prompt, params) for prompt, params in queue]
        finish(engine)
        output = engine.result(names[position])
        return tokens_of(output), output.num_preemptions

    solo, _ = says([], 0)
    assert len(set(solo)) > 1
    assert says([(50, other)], 0)[0] == solo
    assert says([(50, other)], 1)[0] == solo
    assert says([(50, SamplingParams(temperature=0.3, seed=1, max_tokens=9))], 1)[0] == solo
    preempted, times = says([(50, other)], 1, blocks=9)
    assert preempted == solo
    assert times > 0
    engine = simulate()
    twins = [engine.add(A, sampled) for _ in range(2)]
    finish(engine)
    assert [tokens_of(engine.result(name)) for name in twins] == [solo, solo]
    assert says([], 0) != (alone(A, 16), 0)


def test_requests_without_a_seed_differ_from_each_other_and_repeat_in_the_next_engine() -> None:
    def pair() -> list[list[int]]:
        engine = simulate()
        names = [engine.add(A, SamplingParams(temperature=1, max_tokens=8)) for _ in range(2)]
        finish(engine)
        return [tokens_of(engine.result(name)) for name in names]

    assert pair() == pair()
    assert pair()[0] != pair()[1]


# -- what fits ---------------------------------------------------------------------------------------------------------


def test_a_prompt_larger_than_the_pool_is_refused_with_both_numbers() -> None:
    engine = simulate(bs=4, blocks=3)
    healthy = engine.add([1, 2], greedy(3))
    with pytest.raises(ValueError, match=r"needs 4 blocks .* offers it 3"):
        engine.add(range(13))
    assert finish(engine, most=40) == 3
    assert tokens_of(engine.result(healthy)) == alone([1, 2], 3)


@pytest.mark.parametrize(
    ("max_tokens", "gets", "detail"), [(4, 4, None), (5, 4, "kv_capacity"), (None, 4, "kv_capacity")]
)
def test_a_request_that_fills_the_pool_ends_there(max_tokens: int | None, gets: int, detail: str | None) -> None:
    engine = simulate(bs=4, blocks=3)
    names = [engine.add(range(9), greedy(max_tokens)), engine.add([1, 2], greedy(3))]
    finish(engine, most=40)
    outputs = [engine.result(name) for name in names]
    assert tokens_of(outputs[0]) == alone(range(9), gets)
    assert (outputs[0].outputs[0].finish_reason, outputs[0].outputs[0].stop_reason) == ("length", detail)
    assert tokens_of(outputs[1]) == alone([1, 2], 3)


@pytest.mark.parametrize("length", [17, 16])
def test_a_prompt_that_leaves_no_room_for_an_answer_is_refused(length: int) -> None:
    engine = simulate(max_model_len=16)
    with pytest.raises(ValueError, match=rf"{length} tokens; max_model_len is 16"):
        engine.add(range(length), greedy(10))
    assert not engine.has_unfinished


@pytest.mark.parametrize(("length", "max_tokens", "gets"), [(15, 10, 1), (12, 10, 4), (12, None, 4)])
def test_the_model_length_ends_a_request_exactly(length: int, max_tokens: int | None, gets: int) -> None:
    output = run(simulate(max_model_len=16), range(length), max_tokens).outputs[0]
    assert (len(output.token_ids), output.finish_reason, output.stop_reason) == (gets, "length", "max_model_len")


@pytest.mark.parametrize("max_tokens", [0, -1])
def test_no_tokens_is_refused_when_the_parameters_are_made(max_tokens: int) -> None:
    with pytest.raises(ValueError, match=rf"max_tokens is {max_tokens}; allowed: a whole number of 1 or more"):
        SamplingParams(max_tokens=max_tokens)


def test_one_token_is_prefill_alone() -> None:
    engine = simulate()
    plans = record_plans(engine)
    assert len(tokens_of(run(engine, range(9), 1))) == 1
    assert [plan.decode_only for plan in plans] == [False]


@pytest.mark.parametrize("bs", [1, 4, 16])
@pytest.mark.parametrize("off", [-1, 0, 1])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_lengths_around_a_block_edge_all_work(bs: int, k: int, off: int) -> None:
    length = max(1, k * bs + off)
    engine = simulate(bs=bs)
    assert tokens_of(run(engine, range(length), 2)) == alone(range(length), 2, bs=64)
    assert run(engine, range(length), 2).num_cached_tokens == (length - 1) // bs * bs


# -- at the door -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ([], "the prompt is empty"),
        ([32_000], "token id 32000 is out of range; allowed: 0 to 31999"),
        ([-1], "token id -1 is out of range"),
        ([1.5], "whole numbers"),
        ("text", "needs a model with a tokenizer"),
    ],
)
def test_a_bad_prompt_is_refused_and_nothing_is_queued(prompt: Any, says: str) -> None:
    engine = simulate()
    with pytest.raises(ValueError, match=says):
        engine.add(prompt)
    assert not engine.has_unfinished
    assert used(engine) == 0
    assert len(tokens_of(run(engine, [1, 2]))) == 1


def test_an_id_that_lives_is_refused_and_one_that_ended_may_come_again() -> None:
    engine = simulate()
    engine.add(range(5), greedy(3), request_id="x")
    with pytest.raises(ValueError, match="'x' is in use"):
        engine.add(range(5), request_id="x")
    finish(engine)
    engine.add(range(9), greedy(2), request_id="x")
    finish(engine)
    assert tokens_of(engine.result("x")) == alone(range(9), 2)


def test_an_id_whose_other_samples_still_run_is_in_use() -> None:
    engine = simulate()
    engine.add(range(5), greedy(3, n=2), request_id="x")
    while "x" in engine.scheduler.requests:
        engine.step()
    assert engine.has_unfinished
    with pytest.raises(ValueError, match="'x' is in use"):
        engine.add(range(5), request_id="x")
    finish(engine)
    assert len(engine.result("x").outputs) == 2


def test_the_id_of_a_sample_that_ended_is_in_use_until_the_others_end() -> None:
    engine = simulate()
    engine.add(range(5), greedy(3, n=3), request_id="x")
    for _ in range(2):
        engine.step()
    engine.abort("x.1")
    with pytest.raises(ValueError, match=r"'x\.1' is in use"):
        engine.add(range(5), request_id="x.1")
    finish(engine)
    assert [sample.finish_reason for sample in engine.result("x").outputs] == ["length", "abort", "length"]
    assert tokens_of(run(engine, range(5), 2, request_id="x.1")) == alone(range(5), 2)


def test_a_request_named_like_a_sample_of_another_does_not_disturb_it() -> None:
    engine = simulate()
    engine.add(range(5), greedy(3, n=2), request_id="x")
    engine.add(range(9), greedy(5), request_id="x.1")
    finish(engine)
    assert [sample.token_ids for sample in engine.result("x").outputs] == [alone(range(5), 3)] * 2
    assert tokens_of(engine.result("x.1")) == alone(range(9), 5)


# -- abort -------------------------------------------------------------------------------------------------------------


def test_aborting_a_waiting_request_leaves_no_trace() -> None:
    engine = simulate(bs=4, blocks=8)
    name = engine.add(LONG, greedy(3))
    assert engine.abort(name)
    assert available(engine) == 8
    assert not engine.has_unfinished


def test_aborting_in_the_middle_of_a_prompt_keeps_only_full_computed_blocks() -> None:
    engine = simulate(bs=4, blocks=8, budget=6)
    name = engine.add(LONG, greedy(3))
    engine.step()
    assert engine.abort(name)
    assert available(engine) == 8
    assert run(engine, LONG).num_cached_tokens == 4  # 6 tokens were computed: one full block


def test_aborting_a_decoding_request_frees_it_at_once_and_it_says_no_more() -> None:
    engine = simulate(bs=4, blocks=8)
    name, other = engine.add(range(6), greedy(9)), engine.add(range(20, 26), greedy(9))
    for _ in range(3):
        engine.step()
    assert engine.abort(name)
    assert available(engine) == 8 - len(table(engine, other))
    said = engine.result(name).outputs[0]
    assert (said.finish_reason, said.token_ids) == ("abort", alone(range(6), 3))
    while engine.has_unfinished:
        report = engine.step()
        assert name not in report.tokens
        assert name not in report.finished
    assert engine.result(name).outputs[0] == said


def test_aborting_twice_or_too_late_or_nobody_changes_nothing() -> None:
    engine = simulate(bs=4, blocks=8)
    name = engine.add(range(6), greedy(2))
    finish(engine)
    before = engine.snapshot()
    assert not engine.abort(name)
    assert not engine.abort("nobody")
    assert engine.snapshot() == before
    again = engine.add(range(6), greedy(2))
    assert [engine.abort(again) for _ in range(2)] == [True, False]


def test_aborting_a_sharer_leaves_the_shared_blocks_to_the_others() -> None:
    engine = simulate(bs=4, blocks=8)
    run(engine, range(9))
    a, b = engine.add(range(9), greedy(6)), engine.add(range(9), greedy(6))
    engine.step()
    shared = table(engine, b)[:2]
    refs = engine.scheduler.cache.pool.ref
    assert [refs[block] for block in shared] == [2, 2]
    engine.abort(a)
    assert [refs[block] for block in shared] == [1, 1]
    finish(engine)
    assert tokens_of(engine.result(b)) == alone(range(9), 6)
    assert available(engine) == 8


def test_aborting_a_group_ends_every_sample() -> None:
    engine = simulate(bs=4, blocks=8)
    name = engine.add(range(5), greedy(9, n=3))
    for _ in range(3):
        engine.step()
    engine.abort(name)
    assert not engine.has_unfinished
    assert available(engine) == 8
    assert [sample.finish_reason for sample in engine.result(name).outputs] == ["abort"] * 3


# -- several engines ---------------------------------------------------------------------------------------------------


def test_two_engines_side_by_side_do_not_know_of_each_other() -> None:
    one, two = simulate(bs=4), simulate(bs=16)
    for engine, length in ((one, 9), (two, 40)):
        engine.add(range(length), greedy(6), request_id="x")
    for _ in range(3):
        one.step()
        two.step()
    one.abort("x")
    finish(two)
    assert tokens_of(two.result("x")) == alone(range(40), 6)
    assert run(one, range(9)).num_cached_tokens == 8
    assert run(two, range(40)).num_cached_tokens == 32
    assert one.number != two.number


def test_a_closed_engine_says_so() -> None:
    with simulate() as engine:
        run(engine, range(5))
    engine.close()
    for call in (engine.step, engine.run, engine.snapshot, lambda: engine.add([1])):
        with pytest.raises(RuntimeError, match=f"engine {engine.number} is closed"):
            call()

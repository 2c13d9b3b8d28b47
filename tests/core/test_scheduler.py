"""One budget, one plan per step: what may be in it, in which order, and what a step may not do."""

from itertools import pairwise

import pytest
from simulated import alone, finish, greedy, record_plans, run, simulate, table, tokens_of

from minivllm import SamplingParams
from minivllm.core.audit import audit, leaks
from minivllm.events import Wait


def test_decodes_are_not_starved_by_a_long_prompt() -> None:
    engine = simulate(bs=4, budget=8)
    short = engine.add(range(4), greedy(20))
    engine.step()
    engine.add(range(100, 180), greedy(1))
    for _ in range(10):
        assert short in engine.step().tokens


def test_decodes_chunks_and_new_prompts_share_one_budget() -> None:
    engine = simulate(bs=4, budget=10, max_num_seqs=4)
    plans = record_plans(engine)
    names = [engine.add(range(20 * k, 20 * k + 7), greedy(5)) for k in range(6)]
    finish(engine)
    assert [[(row.request_id, row.count) for row in plan.rows] for plan in plans[:2]] == [
        [("A", 7), ("B", 3)],
        [("A", 1), ("B", 4), ("C", 5)],
    ]
    for plan in plans:
        assert plan.num_tokens <= 10
        assert len(plan.rows) <= 4
        counts = [row.count for row in plan.rows]
        decodes = [count == 1 and row.start >= 7 for count, row in zip(counts, plan.rows, strict=True)]
        assert decodes == sorted(decodes, reverse=True)  # decodes stand in front
    assert [tokens_of(engine.result(name)) for name in names] == [alone(range(20 * k, 20 * k + 7), 5) for k in range(6)]


def test_a_budget_below_the_number_of_decodes_serves_the_first_and_then_the_others() -> None:
    engine = simulate(bs=4)
    names = [engine.add([k], greedy(5)) for k in range(4)]
    engine.step()
    engine.reconfigure(max_num_batched_tokens=2)
    plans = record_plans(engine)
    finish(engine)
    assert {row.count for plan in plans for row in plan.rows} == {1}
    assert max(plan.num_tokens for plan in plans) == 2
    assert [tokens_of(engine.result(name)) for name in names] == [alone([k], 5) for k in range(4)]


def test_unmixed_steps_hold_prefills_or_decodes_and_prefills_go_first() -> None:
    engine = simulate(bs=4, budget=8, mix_prefill_decode=False)
    plans = record_plans(engine)
    first = engine.add(range(4), greedy(6))
    engine.step()
    late = engine.add(range(100, 120), greedy(3))
    finish(engine)
    kinds = ["".join("d" if row.count == 1 else "p" for row in plan.rows) for plan in plans]
    assert kinds == ["p", "p", "p", "p", "dd", "dd", "d", "d", "d"]
    assert tokens_of(engine.result(first)) == alone(range(4), 6)
    assert tokens_of(engine.result(late)) == alone(range(100, 120), 3)


def test_without_chunks_a_prompt_is_computed_in_one_piece_or_refused() -> None:
    engine = simulate(bs=4, budget=8, enable_chunked_prefill=False)
    plans = record_plans(engine)
    with pytest.raises(ValueError, match=r"9 tokens; with enable_chunked_prefill=False at most .*=8 are"):
        engine.add(range(9))
    names = [engine.add(range(10 * k, 10 * k + 5), greedy(3)) for k in range(3)]
    finish(engine)
    assert [row.count for plan in plans for row in plan.rows if row.start == 0] == [5, 5, 5]
    assert [tokens_of(engine.result(name)) for name in names] == [alone(range(10 * k, 10 * k + 5), 3) for k in range(3)]


def test_a_resumed_request_longer_than_the_budget_comes_back_in_pieces_even_without_chunks() -> None:
    engine = simulate(bs=4, blocks=7, budget=12, enable_chunked_prefill=False, enable_prefix_caching=False)
    plans = record_plans(engine)
    a, b = engine.add(range(6), greedy(12)), engine.add(range(50, 56), greedy(12))
    finish(engine)
    assert engine.result(b).num_preemptions == 1
    assert [row.count for plan in plans for row in plan.rows if row.request_id == b and row.count > 1] == [6, 12]
    assert tokens_of(engine.result(a)) == alone(range(6), 12)
    assert tokens_of(engine.result(b)) == alone(range(50, 56), 12)


def test_the_watermark_keeps_blocks_free_for_those_who_run_but_not_from_the_only_one() -> None:
    def preemptions(watermark: float) -> int:
        engine = simulate(bs=4, blocks=10, watermark=watermark)
        names = [engine.add(range(10 * k, 10 * k + 8), greedy(12)) for k in range(4)]
        finish(engine)
        return sum(engine.result(name).num_preemptions for name in names)

    assert preemptions(0.6) < preemptions(0)
    assert tokens_of(run(simulate(bs=4, blocks=2, watermark=0.9), range(8), 1)) == alone(range(8), 1)


@pytest.mark.parametrize("mixed", [True, False])
def test_a_step_that_preempted_admits_nobody(mixed: bool) -> None:
    engine = simulate(bs=4, blocks=6, mix_prefill_decode=mixed)
    recorder = engine.record()
    for k in range(5):
        engine.add(range(10 * k, 10 * k + 8 - k), greedy(10))
    preempted = 0
    while engine.has_unfinished:
        before = {r.id for r in engine.scheduler.running}
        report = engine.step()
        if report.preempted:
            preempted += 1
            assert {r.id for r in engine.scheduler.running} | set(report.finished) <= before
            waits = [e for e in recorder.events_of(recorder.last_tick) if isinstance(e, Wait)]
            assert [wait.reason for wait in waits] == (["preempted"] if mixed else [wait.reason for wait in waits])
    assert preempted > 0


def test_the_victim_is_the_last_admitted_and_comes_back_before_those_who_wait() -> None:
    engine = simulate(bs=4, blocks=7)
    a, b = engine.add(range(8), greedy(12)), engine.add(range(50, 58), greedy(12))
    c = engine.add(range(90, 106), greedy(1))
    while not (report := engine.step()).preempted:
        pass
    assert report.preempted == (b,)
    assert [r.id for r in engine.scheduler.waiting] == [b, c]
    assert [r.id for r in engine.scheduler.running] == [a]


def test_a_victim_that_stood_before_its_preemptor_is_taken_out_of_the_plan() -> None:
    engine = simulate(bs=4, blocks=4, policy="priority")
    plans = record_plans(engine)
    modest = engine.add(range(6), greedy(10), priority=5)
    engine.step()
    urgent = engine.add(range(50, 58), greedy(6), priority=0)
    preempted: tuple[str, ...] = ()
    while not preempted:
        preempted = engine.step().preempted
    assert preempted == (modest,)
    assert [row.request_id for row in plans[-1].rows] == [urgent]
    finish(engine)
    assert tokens_of(engine.result(modest)) == alone(range(6), 10)
    assert tokens_of(engine.result(urgent)) == alone(range(50, 58), 6)


def test_waiting_is_explained() -> None:
    engine = simulate(bs=4, blocks=4, budget=8, max_num_seqs=2)
    recorder = engine.record()
    for k in range(3):
        engine.add(range(10 * k, 10 * k + 6), greedy(4))
    finish(engine)
    reasons = [e.reason for events in recorder.ticks for e in events if isinstance(e, Wait)]
    assert {"budget", "seats"} >= set(reasons[:2])
    engine = simulate(bs=4, blocks=3)
    recorder = engine.record()
    engine.add(range(8), greedy(3))
    engine.add(range(50, 58), greedy(3))
    engine.step()
    (wait,) = [e for e in recorder.events_of(1) if isinstance(e, Wait)]
    assert (wait.reason, wait.need, wait.available) == ("memory", 2, 1)


def test_nobody_jumps_over_one_that_does_not_fit() -> None:
    engine = simulate(bs=4, blocks=4)
    running = engine.add(range(8), greedy(4))
    engine.step()
    big, small = engine.add(range(50, 62), greedy(1)), engine.add([1], greedy(1))
    engine.step()
    assert [r.id for r in engine.scheduler.running] == [running]
    assert [r.id for r in engine.scheduler.waiting] == [big, small]
    finish(engine)


def test_the_cohort_changes_exactly_when_the_rows_do() -> None:
    engine = simulate(bs=4)
    plans = record_plans(engine)
    engine.add(range(4), greedy(6))
    engine.step()
    engine.step()
    engine.add(range(8), greedy(2))
    finish(engine)
    same = [a.cohort == b.cohort for a, b in pairwise(plans)]
    rows = [[r.request_id for r in plan.rows] for plan in plans]
    assert same == [a == b for a, b in pairwise(rows)]
    assert set(same) == {True, False}


def test_forks_share_blocks_until_they_write_and_go_their_own_ways() -> None:
    engine = simulate(bs=4)
    parent = engine.add(range(6), greedy(9))
    for _ in range(3):
        engine.step()
    child = engine.fork(parent)
    assert table(engine, child) == table(engine, parent)
    finish(engine)
    assert tokens_of(engine.result(child)) == tokens_of(engine.result(parent)) == alone(range(6), 9)


def test_forks_at_a_temperature_draw_their_own_tokens_and_the_parent_says_what_it_would_have_said() -> None:
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=12)
    said = []
    for forks in (0, 2):
        engine = simulate(bs=4)
        parent = engine.add(range(6), params)
        for _ in range(3):
            engine.step()
        names = [parent, *(engine.fork(parent) for _ in range(forks))]
        finish(engine)
        said.append([tuple(tokens_of(engine.result(name))) for name in names])
    (before,), after = said
    assert after[0] == before
    assert len(set(after)) == 3
    assert len({tokens[:3] for tokens in after}) == 1  # what was said before the fork is shared


def test_a_sample_that_lags_behind_never_writes_into_what_another_published() -> None:
    engine = simulate(bs=4, budget=6)
    name = engine.add(range(6), SamplingParams(temperature=1, seed=1, max_tokens=4, n=2))
    engine.step()
    engine.reconfigure(max_num_batched_tokens=1)  # the second sample starts when the first has ended
    finish(engine)
    first, second = (sample.token_ids for sample in engine.result(name).outputs)
    assert first != second
    for answer in (first, second):
        turn = [*range(6), *answer, 1]
        output = run(engine, turn, 3)
        assert output.num_cached_tokens == 8
        assert tokens_of(output) == alone(turn, 3)


def test_a_request_that_is_still_computing_cannot_be_forked() -> None:
    engine = simulate(bs=4, budget=6)
    name = engine.add(range(8), greedy(12))
    for _ in ("it waits", "its prompt is under way"):
        with pytest.raises(ValueError, match="cannot be forked"):
            engine.fork(name)
        engine.step()
    while len(engine.scheduler.requests[name].tokens) < 15:
        engine.step()
    engine.reconfigure(block_size=4)  # an empty cache: what it has said is computed again, in three steps
    for _ in ("its prompt", "its answer"):
        engine.step()
        with pytest.raises(ValueError, match="cannot be forked"):
            engine.fork(name)
    finish(engine)
    assert tokens_of(engine.result(name)) == alone(range(8), 12)


def test_a_fork_without_a_seat_waits_its_turn_with_all_its_tokens() -> None:
    engine = simulate(bs=4, max_num_seqs=1)
    recorder = engine.record()
    parent = engine.add(range(6), greedy(9))
    for _ in range(4):
        engine.step()
    child = engine.fork(parent)
    assert [r.id for r in engine.scheduler.waiting] == [child]
    engine.step()
    assert recorder.at(recorder.last_tick) == engine.snapshot()
    finish(engine)
    assert tokens_of(engine.result(child)) == alone(range(6), 9)


def test_a_fork_that_is_preempted_before_its_first_step_never_joins() -> None:
    engine = simulate(bs=4, blocks=3)
    plans = record_plans(engine)
    parent = engine.add(range(8), greedy(5))
    engine.step()
    child = engine.fork(parent)
    engine.add([1], greedy(1))
    engine.abort(child)
    engine.step()
    assert child not in [join.request_id for join in plans[-1].joined]
    finish(engine)


def test_samples_of_one_prompt_compute_it_once() -> None:
    engine = simulate(bs=4)
    plans = record_plans(engine)
    name = engine.add(range(16), greedy(4, n=4))
    finish(engine)
    assert sum(plan.num_tokens for plan in plans) == 16 + 3 + 3 * (1 + 3)
    assert [sample.token_ids for sample in engine.result(name).outputs] == [alone(range(16), 4)] * 4
    assert [sample.index for sample in engine.result(name).outputs] == [0, 1, 2, 3]


def test_lowering_max_num_seqs_on_a_running_engine_sends_the_last_ones_back() -> None:
    engine = simulate(bs=4)
    names = [engine.add(range(10 * k, 10 * k + 5), greedy(5)) for k in range(3)]
    engine.step()
    engine.reconfigure(max_num_seqs=1)
    assert [r.id for r in engine.scheduler.running] == names[:1]
    finish(engine)
    assert [tokens_of(engine.result(name)) for name in names] == [alone(range(10 * k, 10 * k + 5), 5) for k in range(3)]


# -- the audit itself --------------------------------------------------------------------------------------------------


def test_the_audit_names_each_kind_of_damage() -> None:
    def damaged(break_it: str) -> str:
        engine = simulate(bs=4, blocks=8)
        a = engine.scheduler
        engine.add(range(9), greedy(9))
        engine.add(range(50, 53), greedy(9))
        engine.step()
        exec(break_it, {"a": a, "pool": a.cache.pool, "index": a.cache.index, "r": a.running[0]})
        return "; ".join(audit(a))

    assert damaged("") == ""
    assert "block 0: ref 2, but 1 in tables (A)" in damaged("pool.ref[0] += 1")
    assert "not in the free queue: [7]" in damaged("pool.free.pop()")
    assert "twice: [7]" in damaged("pool.free.append(7)")
    assert "referenced blocks are in the free queue: [0]" in damaged("pool.free.append(0)")
    assert "disagree" in damaged("index.hash_of.pop(0)")
    assert "can be found by hash: [7]" in damaged("index.publish(7, b'x')")
    assert "computed 99" in damaged("r.num_computed = 99")
    assert "in both queues or in none" in damaged("a.waiting.append(r)")
    assert "is over (length) and still there" in damaged("r.limit = 10")
    assert "has a block twice" in damaged("r.table.append(r.table[0]); pool.ref[0] += 1")


def test_the_leak_finder_names_blocks_nobody_owns() -> None:
    engine = simulate(bs=4, blocks=8)
    engine.add(range(9), greedy(9))
    engine.step()
    cache = engine.scheduler.cache
    assert leaks(cache, engine.scheduler.requests.values()) == {}
    cache.pool.ref[1] += 2  # type: ignore[attr-defined]
    assert leaks(cache, engine.scheduler.requests.values()) == {1: 2}

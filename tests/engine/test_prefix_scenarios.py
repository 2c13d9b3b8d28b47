"""The prefix cache as its users see it: how many tokens a prompt finds, and that nothing it finds is wrong."""

import pytest
from simulated import (
    Scripted,
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

from minivllm import EngineConfig
from minivllm.events import Take
from minivllm.runtime.sim import SimRunner

SYSTEM = list(range(1000, 1160))  # 160 tokens


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 2), (6, 3)])
def test_decode_takes_a_block_only_when_it_writes_into_it(tokens: int, blocks: int) -> None:
    engine = simulate(bs=4)
    recorder = engine.record()
    assert tokens_of(run(engine, [1, 2, 3, 4], tokens)) == alone([1, 2, 3, 4], tokens)
    assert sum(isinstance(event, Take) for events in recorder.ticks for event in events) == blocks


@pytest.mark.parametrize(("prompt", "max_tokens"), [([1, 2, 3], 2), ([1, 2, 3, 4], 1)])
def test_a_pool_of_one_block_is_enough_when_the_newest_token_is_never_fed_back(prompt: list, max_tokens: int) -> None:
    output = run(simulate(bs=4, blocks=1), prompt, max_tokens)
    assert tokens_of(output) == alone(prompt, max_tokens)
    assert output.num_preemptions == 0
    assert output.outputs[0].finish_reason == "length"
    assert output.outputs[0].stop_reason is None


def test_equal_blocks_after_different_pasts_are_not_shared() -> None:
    a = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    prompts = {
        "A": (a, 0),
        "Z": ([9, 9, 9, 9, 1], 0),
        "B": ([9, 9, 9, 9, 5, 6, 7, 8, 9], 4),
        "C": ([5, 6, 7, 8, 9], 0),
        "D": ([1, 2, 3, 4, 5, 6, 7, 8, 42], 8),
        "F": ([0, *a], 0),
    }
    engine = simulate(bs=4)
    for name, (ids, cached) in prompts.items():
        output = run(engine, ids, 3)
        assert output.num_cached_tokens == cached, name
        assert tokens_of(output) == alone(ids, 3), name


def test_a_hasher_that_always_collides_costs_nothing_but_time() -> None:
    engine = simulate(bs=4, hasher=lambda parent, tokens, extra: b"always the same")
    for ids, cached in [([1, 2, 3, 4, 5, 6, 7, 8, 9], 0), ([5, 6, 7, 8, 9], 0), ([1, 2, 3, 4, 5, 6, 7, 8, 1], 8)]:
        output = run(engine, ids, 3)
        assert output.num_cached_tokens == cached
        assert tokens_of(output) == alone(ids, 3)


def test_an_unchained_hash_that_nobody_verifies_gives_false_hits_and_wrong_text() -> None:
    """The article's fault: it hashes a block's tokens alone."""

    def unchained(parent: bytes, tokens: list, extra: tuple) -> bytes:
        return repr(list(tokens)).encode()

    engine = simulate(bs=4, hasher=unchained, verify_prefix_hits=False)
    run(engine, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    output = run(engine, [5, 6, 7, 8, 9], 3)
    assert output.num_cached_tokens == 4
    assert tokens_of(output) != alone([5, 6, 7, 8, 9], 3)
    verified = simulate(bs=4, hasher=unchained)
    run(verified, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert run(verified, [5, 6, 7, 8, 9]).num_cached_tokens == 0


CHANGED_AT = [(0, 0), (3, 0), (15, 0), (16, 16), (100, 96), (143, 128), (144, 144), (155, 144), (159, 144)]


@pytest.mark.parametrize(("index", "cached"), CHANGED_AT)
def test_one_changed_token_ends_the_hit_at_the_block_before_it(index: int, cached: int) -> None:
    other = SYSTEM.copy()
    other[index] = 7
    engine = simulate(bs=16)
    run(engine, SYSTEM)
    output = run(engine, other)
    assert output.num_cached_tokens == cached
    assert tokens_of(output) == alone(other, bs=16)
    assert used(engine) == 0


@pytest.mark.parametrize(("other", "cached"), [(SYSTEM, 144), ([*SYSTEM[:40], 7, *SYSTEM[40:]], 32)])
def test_an_unchanged_prompt_hits_all_but_its_last_block_and_an_inserted_token_shifts_the_rest(
    other: list, cached: int
) -> None:
    engine = simulate(bs=16)
    run(engine, SYSTEM)
    assert run(engine, other).num_cached_tokens == cached


def test_two_tenants_never_share_and_each_finds_its_own() -> None:
    engine, cached, keys = simulate(bs=4), [], []
    for salt in (None, "a", "b", "a", None):
        cached.append(run(engine, range(9), cache_salt=salt).num_cached_tokens)
        keys.append(published(engine))
    assert cached == [0, 0, 0, 8, 8]
    assert keys[2] == 6  # the salt is in every key, not only compared at the lookup


def test_salt_and_adapter_of_the_same_name_are_different_things() -> None:
    engine = simulate(bs=4)
    run(engine, range(9), cache_salt="x")
    assert run(engine, range(9), adapter="x").num_cached_tokens == 0
    assert run(engine, range(9), adapter="x").num_cached_tokens == 8


@pytest.mark.parametrize("salt", ["", 5])
def test_a_salt_that_is_empty_or_no_text_is_refused(salt: object) -> None:
    engine = simulate()
    with pytest.raises(ValueError, match="not empty"):
        engine.add([1], cache_salt=salt)  # type: ignore[arg-type]
    assert not engine.has_unfinished


@pytest.mark.parametrize("budget", [8192, 6])
def test_twins_in_the_same_step_both_miss_and_both_are_right(budget: int) -> None:
    engine = simulate(bs=4, blocks=8, budget=budget)
    x, y = (engine.add(range(9), greedy(3)) for _ in range(2))
    while engine.has_unfinished:
        engine.step()
        if y in engine.scheduler.requests and engine.scheduler.requests[y].num_cached is not None:
            assert engine.scheduler.requests[y].num_cached <= (0 if budget > 9 else 4)
        if budget > 9 and engine.tick == 1:
            assert used(engine) == 6
    assert tokens_of(engine.result(x)) == tokens_of(engine.result(y)) == alone(range(9), 3)
    assert run(engine, range(9)).num_cached_tokens == 8


@pytest.mark.parametrize(("generated", "cached"), list(enumerate([4, 4, 8, 8, 8, 8, 12, 12], 1)))
def test_the_next_chat_turn_reuses_the_answer_except_its_last_token(generated: int, cached: int) -> None:
    prompt = [11, 12, 13, 14, 15, 16]
    engine = simulate(bs=4)
    answer = tokens_of(run(engine, prompt, generated))
    turn = [*prompt, *answer, 1, 2, 3]
    output = run(engine, turn, 5)
    assert output.num_cached_tokens == cached
    assert tokens_of(output) == alone(turn, 5)


@pytest.mark.parametrize(("bs", "cached"), [(1, 149), (4, 148), (16, 144)])
def test_a_long_turn_reuses_everything_that_was_fed(bs: int, cached: int) -> None:
    prompt = list(range(100))
    engine = simulate(bs=bs, blocks=1024 // bs)
    turn = prompt + tokens_of(run(engine, prompt, 50))
    turn += [7] * (200 - len(turn))
    assert run(engine, turn).num_cached_tokens == cached


BLOCK_SIZES = [(1, 100, 0), (4, 100, 0), (8, 96, 0), (16, 96, 8), (32, 96, 8), (64, 64, 8), (128, 0, 8), (256, 0, 136)]


@pytest.mark.parametrize(("bs", "cached", "wasted"), BLOCK_SIZES)
def test_the_block_is_the_unit_of_sharing_and_of_waste(bs: int, cached: int, wasted: int) -> None:
    engine = simulate(bs=bs, blocks=2048 // bs)
    run(engine, range(120))
    name = engine.add([*range(100), *range(500, 520)], greedy(2))
    engine.step()
    assert engine.scheduler.requests[name].num_cached == cached
    assert len(table(engine, name)) * bs - 120 == wasted


def test_prompts_of_35_and_36_tokens_share_the_one_block_of_32_that_both_fill() -> None:
    engine = simulate(bs=32)
    run(engine, range(35))
    assert run(engine, range(36)).num_cached_tokens == 32


def test_a_new_block_size_is_a_new_cache_over_the_same_number_of_tokens() -> None:
    engine = simulate(bs=4, blocks=16)
    run(engine, range(9))
    assert run(engine, range(9)).num_cached_tokens == 8
    engine.reconfigure(block_size=8)
    assert published(engine) == 0
    assert engine.config.num_blocks == 8
    assert [run(engine, range(9)).num_cached_tokens for _ in range(2)] == [0, 8]


def test_a_new_block_size_carries_running_requests_over() -> None:
    engine = simulate(bs=4, blocks=16)
    name = engine.add(range(9), greedy(12))
    for _ in range(5):
        engine.step()
    engine.reconfigure(block_size=3)
    assert engine.scheduler.running == []
    finish(engine)
    assert tokens_of(engine.result(name)) == alone(range(9), 12)


@pytest.mark.parametrize("bs", [0, -1, 1025, 2.5, True, "16"])
def test_a_block_size_that_cannot_be_is_refused_with_what_can(bs: object) -> None:
    with pytest.raises(ValueError, match=r"block_size is .*from 1 to 1024"):
        EngineConfig(block_size=bs)  # type: ignore[arg-type]


@pytest.mark.parametrize("bs", [3, 24])
def test_block_sizes_need_not_be_powers_of_two(bs: int) -> None:
    engine = simulate(bs=bs)
    assert tokens_of(run(engine, range(50), 9)) == alone(range(50), 9)
    assert run(engine, range(50)).num_cached_tokens == 49 // bs * bs


class Weighted(SimRunner):
    """A model with one weight: what it stores depends on it, as K and V do."""

    weight = 1

    def _write(self, name: str, start: int, count: int) -> None:
        super()._write(name, start, count)
        for position in range(start, start + count):
            block, offset = divmod(position, self.block_size)
            self.pool[self.tables[name][block], offset] *= self.weight


def test_after_the_weights_changed_a_reset_makes_the_cache_right_again() -> None:
    runner, fresh = Weighted(64, 16), Weighted(64, 16)
    engine = simulate(bs=16, runner=runner)
    run(engine, range(40))
    assert run(engine, range(40)).num_cached_tokens == 32
    runner.weight = fresh.weight = 3
    right = tokens_of(run(simulate(bs=16, runner=fresh), range(40), 4))
    assert tokens_of(run(engine, range(40), 4)) != right  # stale K/V: the fault the reset is for
    assert engine.reset_prefix_cache() is True
    outputs = [run(engine, range(40), 4) for _ in range(2)]
    assert [output.num_cached_tokens for output in outputs] == [0, 32]
    assert [tokens_of(output) for output in outputs] == [right, right]


def test_a_reset_while_a_block_is_in_use_does_nothing_and_says_so() -> None:
    engine = simulate(bs=4)
    run(engine, range(100, 109))
    name = engine.add(range(9), greedy(6))
    engine.step()
    before = engine.snapshot()
    assert engine.reset_prefix_cache() is False
    assert engine.snapshot() == before
    finish(engine)
    assert tokens_of(engine.result(name)) == alone(range(9), 6)


def test_the_hit_path_and_the_miss_path_give_the_same_text() -> None:
    prompt, other = list(range(50)), list(range(300, 337))
    engine = simulate(bs=16)
    cold = run(engine, prompt, 16)
    plans = record_plans(engine)
    warm = run(engine, prompt, 16)
    assert warm.num_cached_tokens == 48
    assert plans[0].rows[0].start == 48
    plans.clear()
    together = engine.add(prompt, greedy(16)), engine.add(other, greedy(16))
    engine.step()
    assert len(plans[0].rows) == 2
    assert len(table(engine, together[1])) == 3
    finish(engine)
    assert tokens_of(cold) == tokens_of(warm) == tokens_of(engine.result(together[0])) == alone(prompt, 16)
    assert tokens_of(engine.result(together[1])) == alone(other, 16)


def test_caching_switched_off_finds_and_publishes_nothing() -> None:
    engine = simulate(bs=4, enable_prefix_caching=False)
    assert [run(engine, range(9)).num_cached_tokens for _ in range(2)] == [0, 0]
    assert published(engine) == 0
    assert available(engine) == 64


@pytest.mark.parametrize(("keep", "cached"), [(None, 8), (2, 8), (1, 4), (0, 0)])
def test_a_small_prefix_cache_keeps_the_heads_that_others_may_share(keep: int | None, cached: int) -> None:
    engine = simulate(bs=4, prefix_cache_blocks=keep)
    run(engine, range(9))
    assert run(engine, range(9)).num_cached_tokens == cached


def test_prompt_logprobs_need_every_position_so_such_a_request_takes_no_hits() -> None:
    engine = simulate(bs=4)
    run(engine, range(9))
    name = engine.add(range(9), greedy(1, prompt_logprobs=1))
    finish(engine)
    assert engine.result(name).num_cached_tokens == 0


def test_a_scripted_model_says_its_script() -> None:
    """The harness itself: what the tests of stopping rely on."""
    assert tokens_of(run(simulate(runner=Scripted(64, 4, [7, 8, 9], 2)), [1, 2], 4)) == [7, 8, 9, 0]

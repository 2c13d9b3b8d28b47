"""Every way to order, store and evict gives the same text: settings change when a token comes, never which."""

from typing import Any

import pytest
from simulated import alone, finish, greedy, simulate, tokens_of

from minivllm import Engine, SamplingParams
from minivllm.config import ALLOCATORS, EVICTIONS, POLICIES, RESERVATIONS

PROMPTS = [
    *([*range(20), k] for k in range(4)),
    *([*range(20), *range(40, 40 + 3 * k)] for k in range(4)),
    *(list(range(100 + k, 101 + 5 * k)) for k in range(1, 5)),
]
WANTED = [3 + k % 9 for k in range(len(PROMPTS))]
TRUE = [alone(prompt, wanted) for prompt, wanted in zip(PROMPTS, WANTED, strict=True)]

PAGED = [
    {"policy": policy, "eviction": eviction, "enable_prefix_caching": caching}
    for policy in POLICIES
    for eviction in EVICTIONS
    for caching in (True, False)
]
CONTIGUOUS = [
    {"kv_layout": "contiguous", "reservation": reservation, "allocator": allocator, "policy": policy}
    for reservation in RESERVATIONS
    for allocator in ALLOCATORS
    for policy in POLICIES[:2]
]
SHAPES = [
    {"mix_prefill_decode": False},
    {"budget": 7},
    {"budget": 40, "enable_chunked_prefill": False},
    {"watermark": 0.4},
    {"max_num_seqs": 1},
    {"prefix_cache_blocks": 2},
    {"verify_prefix_hits": True},
]


def say(engine: Engine, seeded: bool = False) -> list[list[int]]:
    names = [
        engine.add(prompt, drawn(k, wanted) if seeded else greedy(wanted), priority=k % 3)
        for k, (prompt, wanted) in enumerate(zip(PROMPTS, WANTED, strict=True))
    ]
    finish(engine)
    return [tokens_of(engine.result(name)) for name in names]


def drawn(seed: int, wanted: int) -> SamplingParams:
    return SamplingParams(temperature=1.0, seed=seed, max_tokens=wanted)


def drawn_alone(k: int) -> list[int]:
    engine = simulate(blocks=512)
    name = engine.add(PROMPTS[k], drawn(k, WANTED[k]))
    finish(engine)
    return tokens_of(engine.result(name))


DRAWN = [drawn_alone(k) for k in range(len(PROMPTS))]


@pytest.mark.parametrize("options", [*PAGED, *CONTIGUOUS, *SHAPES], ids=lambda o: "-".join(map(str, o.values())))
def test_the_text_does_not_depend_on(options: dict[str, Any]) -> None:
    engine = simulate(**{"bs": 4, "blocks": 24, "max_model_len": 64, **options})
    assert say(engine) == TRUE
    assert say(engine) == TRUE  # and again over a warm cache
    assert say(engine, seeded=True) == DRAWN


@pytest.mark.parametrize("bs", [1, 2, 3, 5, 8, 16, 64])
def test_the_text_does_not_depend_on_the_block_size(bs: int) -> None:
    assert say(simulate(bs=bs, blocks=-(-96 // bs), max_model_len=64)) == TRUE


def test_the_text_does_not_depend_on_changing_everything_on_the_way() -> None:
    engine = simulate(bs=4, blocks=24, max_model_len=64)
    names = [engine.add(prompt, greedy(wanted)) for prompt, wanted in zip(PROMPTS, WANTED, strict=True)]
    changes = [
        {"block_size": 8}, {"policy": "shortest-prompt"}, {"eviction": "fifo"}, {"num_blocks": 30},
        {"kv_layout": "contiguous"}, {"kv_layout": "paged"}, {"enable_prefix_caching": False}, {"max_num_seqs": 2},
    ]  # fmt: skip
    for change in changes:
        engine.step()
        engine.reconfigure(**change)
    finish(engine)
    assert [tokens_of(engine.result(name)) for name in names] == TRUE


def test_settings_that_cannot_change_or_do_not_fit_are_refused_and_nothing_happens() -> None:
    engine = simulate(bs=4, blocks=24)
    engine.add(range(20), greedy(9))
    engine.step()
    before, config = engine.snapshot(), engine.config
    for change, says in (
        ({"dtype": "float32"}, "dtype cannot change on a running engine"),
        ({"num_blocks": 4}, "'A' needs 6 blocks of 4 tokens"),
        ({"num_blocks": 5, "max_num_batched_tokens": 0}, "max_num_batched_tokens is 0"),
        ({"block_size": 0}, "block_size is 0"),
        ({"policy": "luck"}, "policy is 'luck'; allowed: fcfs"),
        ({"kv_layout": "contiguous"}, "no extent of the empty pool"),
    ):
        with pytest.raises(ValueError, match=says):
            engine.reconfigure(**change)
        assert (engine.snapshot(), engine.config) == (before, config)
    finish(engine)


def test_a_smaller_pool_moves_the_limit_of_those_who_live() -> None:
    engine = simulate(bs=4, blocks=24)
    recorder = engine.record()
    name = engine.add(range(9), greedy(50))
    engine.step()
    engine.reconfigure(num_blocks=4)
    engine.step()
    assert recorder.at(recorder.last_tick) == engine.snapshot()
    assert engine.snapshot().request(name).max_tokens == 8
    finish(engine)
    output = engine.result(name).outputs[0]
    assert (output.token_ids, output.stop_reason) == (alone(range(9), 8), "kv_capacity")

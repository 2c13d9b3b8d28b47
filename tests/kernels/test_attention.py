"""Paged attention against float64: ragged, shuffled, poisoned, grouped, split, and mixed steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm.bench.oracle import PagedStep, attention, paged_step, relative_error
from minivllm.kernels import paged_decode, paged_prefill
from minivllm.kernels.batch import RopeTable
from minivllm.kernels.launch import INTERPRETED, multiprocessors
from minivllm.kernels.triton_ops import TritonOps

DEVICE = "cpu" if INTERPRETED else "cuda"
EPS = 1e-6
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1.2e-2 if INTERPRETED else 6e-3}


def attend(step: PagedStep) -> torch.Tensor:
    rope = None if step.cos_sin is None else RopeTable(step.cos_sin)
    return TritonOps().attention(step.qkv, step.kv_layer, step.q_norm, step.k_norm, EPS, rope, step.batch)


def check(rows: list[tuple[int, int]], *shape: int, dtype: torch.dtype = torch.float32, **options: bool) -> None:
    """Output of the live rows and the whole pool must be those of float64."""
    step = paged_step(rows, *shape, dtype, device=DEVICE, **options)
    expected, pool = attention(step, EPS)
    found = attend(step)
    live = torch.cat([torch.full((fed,), context > 0) for context, fed in rows])
    assert relative_error(found[live], expected[live]) < TOLERANCE[dtype]
    written = ~pool.isnan()
    assert torch.equal(written, ~step.kv_layer.isnan())
    assert relative_error(step.kv_layer[written], pool[written]) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ragged_decodes_and_padding_rows(dtype: torch.dtype) -> None:
    check([(1, 1), (5, 1), (0, 1), (70, 1), (200, 1)], 4, 2, 64, 16, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_decodes_and_prefill_chunks_in_one_step(dtype: torch.dtype) -> None:
    check([(40, 7), (9, 9), (0, 3), (33, 1), (20, 2)], 4, 2, 64, 4, dtype=dtype)


@pytest.mark.parametrize("block_size", [1, 4, 16, 33, 64])
def test_any_block_size(block_size: int) -> None:
    check([(65, 1), (64, 1), (17, 5)], 2, 1, 16, block_size)


@pytest.mark.parametrize(("q_heads", "kv_heads"), [(1, 1), (4, 2), (3, 1), (5, 1), (7, 1), (16, 2), (24, 1)])
def test_any_number_of_query_heads_for_a_key_head(q_heads: int, kv_heads: int) -> None:
    check([(37, 1), (12, 3)], q_heads, kv_heads, 32, 8)


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_any_head_size(head_dim: int) -> None:
    check([(37, 1), (12, 3)], 2, 1, head_dim, 8)


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("rope", [True, False])
def test_norm_and_rotary_positions_are_optional(norm: bool, rope: bool) -> None:
    check([(37, 1), (12, 3)], 2, 1, 32, 8, norm=norm, rope=rope)


def test_one_long_request_is_cut_into_pieces() -> None:
    check([(700, 1)], 2, 1, 16, 16)
    check([(400, 3)], 2, 1, 16, 16)


@pytest.mark.parametrize("block_size", [16, 48, 64, 128, 256])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_many_rows_of_long_context_take_high_tiles(
    monkeypatch: pytest.MonkeyPatch, block_size: int, dtype: torch.dtype
) -> None:
    """One program to a multiprocessor, so six of them leave no seat for pieces of a context."""
    monkeypatch.setattr(paged_prefill, "multiprocessors", lambda: 6)
    monkeypatch.setattr(paged_prefill, "LONG", 100)
    rows = [(300, 40), (171, 24), (33, 31), (150, 1)]
    step = paged_step(rows, 8, 1, 16, block_size, dtype, device=DEVICE)
    plan = paged_prefill.plan_prefill(step.batch, len(step.qkv), 8, step.kv_layer)
    assert (plan.block_m, plan.keys, plan.pieces) == ((64, 64, 1) if block_size == 64 else (128, 128, 1))
    check(rows, 8, 1, 16, block_size, dtype=dtype)


@pytest.mark.parametrize("programs", [1, 100, 128, 132, 133, 180, 231, 264, 300, 2048])
def test_high_tiles_leave_at_most_an_eighth_of_the_seats_idle(monkeypatch: pytest.MonkeyPatch, programs: int) -> None:
    monkeypatch.setattr(paged_prefill, "multiprocessors", lambda: 132)
    monkeypatch.setattr(paged_prefill, "LONG", 10)
    step = paged_step([(30, 2)], 2, 1, 16, 16, torch.float16, device=DEVICE)
    idle = 132 * -(-programs // 132) - programs
    assert paged_prefill.high_tiles_pay(step.batch, programs, step.kv_layer) == (idle <= programs / 8)


@settings(max_examples=12, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 90), st.integers(1, 12)), min_size=1, max_size=5),
    group=st.integers(1, 8),
    kv_heads=st.integers(1, 2),
    block_size=st.sampled_from([1, 3, 16, 33, 64]),
    dtype=st.sampled_from(DTYPES),
)
def test_random_steps(
    rows: list[tuple[int, int]], group: int, kv_heads: int, block_size: int, dtype: torch.dtype
) -> None:
    rows = [(context, min(fed, context) or 1) for context, fed in rows]
    if all(context == 0 for context, _ in rows):
        rows[0] = (1, 1)
    check(rows, group * kv_heads, kv_heads, 16, block_size, dtype=dtype)


def test_large_scores_do_not_overflow_in_fp16() -> None:
    """q.k is 102,400 here, beyond fp16; equal scores must average the values 1..5."""
    step = paged_step([(5, 1)], 2, 1, 64, 4, torch.float16, norm=False, rope=False, device=DEVICE)
    step.qkv.fill_(40.0)
    step.qkv[:, -64:] = 5.0
    for position in range(4):
        page, offset = int(step.batch.block_tables[0, position // 4]), position % 4
        step.kv_layer[0, page, offset] = 40.0
        step.kv_layer[1, page, offset] = position + 1.0
    assert torch.allclose(attend(step).float(), torch.tensor(3.0, device=DEVICE), atol=1e-3)
    step = paged_step([(5, 5)], 2, 1, 64, 4, torch.float16, norm=False, rope=False, device=DEVICE)
    step.qkv.fill_(40.0)
    step.qkv[:, -64:] = torch.arange(1.0, 6.0, device=DEVICE)[:, None]
    expected = torch.tensor([1.0, 1.5, 2.0, 2.5, 3.0], device=DEVICE)
    assert torch.allclose(attend(step).float(), expected[:, None].expand(5, 128), atol=1e-3)


@settings(max_examples=25, deadline=None)
@given(
    contexts=st.lists(st.one_of(st.integers(0, 3000), st.sampled_from([1, 2048, 2049])), min_size=1, max_size=9),
    programs=st.integers(1, 40),
)
def test_the_work_list_is_sorted_and_covers_every_token_once(contexts: list[int], programs: int) -> None:
    starts = torch.arange(len(contexts) + 1, dtype=torch.int32, device=DEVICE)
    step = paged_step([(1, 1)], 2, 1, 16, 16, torch.float32, device=DEVICE)
    lengths = torch.tensor(contexts, dtype=torch.int32, device=DEVICE)
    batch = replace(step.batch, context_lens=lengths, query_starts=starts)
    plan = paged_decode.plan_decode(batch, 2, 1, 16, 4, per_multiprocessor=programs)
    names = ("row", "token", "position", "begin", "end", "first", "piece", "pieces")
    items = [dict(zip(names, item, strict=True)) for item in plan.items[: int(plan.used)].tolist()]
    lengths_of = [item["end"] - item["begin"] for item in items]
    assert lengths_of == sorted(lengths_of, reverse=True)
    assert {item["row"] for item in items} == {row for row, context in enumerate(contexts) if context}
    for row in {item["row"] for item in items}:
        pieces = sorted((item for item in items if item["row"] == row), key=lambda item: item["piece"])
        assert [item["begin"] for item in pieces] == [0, *(item["end"] for item in pieces[:-1])]
        assert all(item["begin"] < item["end"] for item in pieces) or contexts[row] == 1
        assert pieces[-1]["end"] == pieces[-1]["position"] == contexts[row] - 1
        assert [item["piece"] for item in pieces] == list(range(len(pieces)))
        assert all(item["first"] == pieces[0]["first"] and item["pieces"] == len(pieces) for item in pieces)
    cut = {item["end"] - item["begin"] for item in items if item["piece"] < item["pieces"] - 1}
    assert len(cut) <= 1  # all but a row's last piece are of one size, so that they end together
    scratch = [item["first"] + item["piece"] for item in items]
    assert sorted(scratch) == list(range(len(items)))  # every piece has a place of its own


def test_rows_about_equally_long_stay_whole_when_there_are_enough_of_them() -> None:
    step, fours = paged_step([(1, 1)], 2, 1, 16, 16, torch.float32, device=DEVICE), multiprocessors() // 4
    for contexts, items in (([500, 520, 600, 640], 4), ([500, 520, 600, 1900], 6)):
        lengths = torch.tensor(contexts * fours, dtype=torch.int32, device=DEVICE)  # one program a multiprocessor
        starts = torch.arange(len(lengths) + 1, dtype=torch.int32, device=DEVICE)
        batch = replace(step.batch, context_lens=lengths, query_starts=starts)
        assert int(paged_decode.plan_decode(batch, 2, 1, 16, 4, per_multiprocessor=1).used) == items * fours


def test_a_step_is_planned_again_when_its_buffers_were_refilled() -> None:
    """A captured graph refills the tensors of one batch object: the plan must follow them."""
    ops, rows = TritonOps(), [(40, 1), (3, 1)]
    first = paged_step(rows, 2, 1, 16, 4, torch.float32, device=DEVICE)
    second = paged_step(rows[::-1], 2, 1, 16, 4, torch.float32, device=DEVICE, seed=1)
    layers = torch.stack((first.kv_layer, first.kv_layer))
    for step in (first, second):
        for name in ("positions", "slots", "query_starts", "context_lens", "block_tables"):
            getattr(first.batch, name).copy_(getattr(step.batch, name))
        for layer in layers:
            layer.copy_(step.kv_layer)
            expected, _ = attention(step, EPS)
            rope = RopeTable(step.cos_sin) if step.cos_sin is not None else None
            found = ops.attention(step.qkv, layer, step.q_norm, step.k_norm, EPS, rope, first.batch)
            assert relative_error(found, expected) < 1e-5

"""Sampling: the drawn token's share of the cumulative distribution holds u, with and without filters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from minivllm.kernels import sample as kernels
from minivllm.kernels.batch import SamplingTensors
from minivllm.kernels.launch import INTERPRETED

DEVICE = "cpu" if INTERPRETED else "cuda"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "CHUNK", 64)


def params(rows: int, temperature: float = 1.0, **fields: float | int | None) -> SamplingTensors:
    """Rows with seeds and positions of their own; `fields` name top_k, top_p, min_p, vocab_size."""
    base = SamplingTensors.greedy(rows, DEVICE)
    where = torch.arange(rows, device=DEVICE)
    vocab_size = fields.pop("vocab_size", None)
    tensors = {name: torch.full_like(getattr(base, name), value) for name, value in fields.items()}
    return replace(
        base, temperature=base.temperature + temperature, seed=where * 1000 - 3, position=where + 10,
        all_greedy=temperature == 0, plain=not tensors, vocab_size=vocab_size, **tensors,
    )  # fmt: skip


def uniforms(given: SamplingTensors) -> Tensor:
    """The contract's hash, in numpy."""
    with np.errstate(over="ignore"):
        seed, position = (x.cpu().numpy().astype(np.uint64) for x in (given.seed, given.position))
        z = seed * np.uint64(0x9E3779B97F4A7C15) + position * np.uint64(0xD1B54A32D192ED03)
        z += np.uint64(0x2545F4914F6CDD1D)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits = (z ^ (z >> np.uint64(31))) >> np.uint64(40)
    return torch.from_numpy((bits.astype(np.float64) + 0.5) / 2**24).to(DEVICE)


def shares(logits: Tensor, given: SamplingTensors) -> Tensor:
    """Probabilities after the filters, float64, by sorting."""
    y = logits.double()
    if given.vocab_size is not None:
        y[:, given.vocab_size :] = float("-inf")
    y = y / given.temperature.double().clamp_min(1e-9)[:, None]
    for row in range(len(y)):
        k, p, m = int(given.top_k[row]), float(given.top_p[row]), float(given.min_p[row])
        if 0 < k < y.shape[1]:
            y[row, y[row] < y[row].topk(k).values[-1]] = float("-inf")
        order = y[row].argsort(descending=True)
        mass = y[row].softmax(-1)[order].cumsum(-1)
        if p < 1:
            y[row, order[1:][mass[:-1] >= p]] = float("-inf")
        if m > 0:
            y[row, y[row].exp() < m * y[row].exp().max()] = float("-inf")
    return y.softmax(-1)


def check(logits: Tensor, given: SamplingTensors) -> Tensor:
    tokens = kernels.sample(logits, given)
    assert tokens.dtype == torch.int64
    share = shares(logits, given)
    mine = share.gather(1, tokens[:, None])[:, 0]
    upper = share.cumsum(-1).gather(1, tokens[:, None])[:, 0]
    u = uniforms(given)
    assert bool((mine > 0).all())
    assert bool((u <= upper + 1e-5).all())
    assert bool((u >= upper - mine - 1e-5).all())
    return tokens


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 4),
    vocab=st.integers(1, 300),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    temperature=st.sampled_from([0.1, 0.7, 1.0, 3.0]),
)
def test_the_token_is_where_the_cdf_passes_u(rows: int, vocab: int, dtype: torch.dtype, temperature: float) -> None:
    check(torch.randn(rows, vocab, device=DEVICE).mul(2).to(dtype), params(rows, temperature))


@pytest.mark.parametrize(
    "fields", [{"top_k": 5}, {"top_p": 0.6}, {"min_p": 0.2}, {"top_k": 9, "top_p": 0.7, "min_p": 0.1}]
)
def test_filters(fields: dict[str, float]) -> None:
    torch.manual_seed(1)
    check(torch.randn(2, 150, device=DEVICE).mul(2), params(2, 0.8, **fields))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fields", [{"top_k": 5}, {"min_p": 0.2}, {"top_k": 149}])
def test_filters_of_half_precision_logits(fields: dict[str, float], dtype: torch.dtype) -> None:
    """Half the bits to search; tied logits stand or fall together."""
    torch.manual_seed(1)
    check(torch.randn(2, 150, device=DEVICE).mul(2).to(dtype), params(2, 0.8, **fields))


def test_filters_that_keep_one_token_are_greedy() -> None:
    logits = torch.randn(2, 100, device=DEVICE)
    for fields in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        assert torch.equal(kernels.sample(logits, params(2, 1.0, **fields)), logits.argmax(-1))


def test_filters_that_are_off_change_nothing() -> None:
    logits = torch.randn(3, 100, device=DEVICE)
    off = replace(params(3, 0.9, top_k=100, top_p=1.0, min_p=0.0))
    assert torch.equal(kernels.sample(logits, off), kernels.sample(logits, params(3, 0.9)))


def test_greedy_takes_the_first_of_tied_maxima_and_mixes_with_sampled_rows() -> None:
    logits = torch.zeros(3, 200, device=DEVICE)
    logits[:, [70, 150]] = 5.0
    given = params(3, 1.0)
    given.temperature[1] = 0.0
    tokens = kernels.sample(logits, given)
    assert int(tokens[1]) == 70
    assert torch.equal(kernels.sample(logits, params(3, 0.0)), torch.full((3,), 70, device=DEVICE))


def test_padding_of_the_vocabulary_is_never_drawn() -> None:
    logits = torch.zeros(4, 128, device=DEVICE)
    logits[:, 100:] = 50.0
    assert bool((check(logits, params(4, 1.0, vocab_size=100)) < 100).all())
    assert bool((kernels.sample(logits, params(4, 0.0, vocab_size=100)) == 0).all())


def test_tokens_of_logit_minus_infinity_are_never_drawn() -> None:
    logits = torch.full((4, 200), float("-inf"), device=DEVICE)
    logits[:, 130:140] = 0.0
    tokens = kernels.sample(logits, params(4, 1.0))
    assert bool(((tokens >= 130) & (tokens < 140)).all())


def test_a_draw_does_not_depend_on_its_neighbours() -> None:
    logits = torch.randn(4, 100, device=DEVICE)
    whole = kernels.sample(logits, params(4))
    fields = ("temperature", "top_k", "top_p", "min_p", "seed", "position")
    alone = replace(params(4), **{name: getattr(params(4), name)[2:3] for name in fields})
    assert torch.equal(kernels.sample(logits[2:3], alone), whole[2:3])

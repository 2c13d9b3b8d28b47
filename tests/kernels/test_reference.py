"""The reference operations against formulas written out the long way, on pools poisoned with NaN."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm.kernels.batch import RopeTable, SamplingTensors, StepBatch
from minivllm.kernels.ops import get_ops
from minivllm.kernels.reference import ReferenceOps, kept, sample, uniform

OPS = ReferenceOps()


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# Attention


def random_step(rows, block_size, kv_heads, head_dim, seed=0, dtype=torch.float32):
    """A step of `rows` = (cached, new) or None for padding; its pool, and each row's keys and values in order.

    Slots that no row has written are NaN, block tables end in ids that do not exist.
    """
    generator = torch.Generator().manual_seed(seed)
    needed = [0 if row is None else -(-sum(row) // block_size) for row in rows]
    blocks = torch.randperm(sum(needed) + 3, generator=generator).tolist()
    kv = torch.full((2, len(blocks), block_size, kv_heads, head_dim), torch.nan, dtype=dtype)
    tables, positions, slots, starts, contexts, truth = [], [], [], [0], [], []
    for row, count in zip(rows, needed, strict=True):
        table = [blocks.pop() for _ in range(count)]
        tables.append(table + [10**6] * (max(needed) + 1 - count))
        cached, new = row or (0, 1)
        history = torch.randn((2, cached + new, kv_heads, head_dim), generator=generator).to(dtype)
        where = [table[p // block_size] * block_size + p % block_size for p in range(cached + new)] if row else [-1]
        kv.flatten(1, 2)[:, where[:cached]] = history[:, :cached]
        truth.append(history)
        positions += range(cached, cached + new)
        slots += where[cached:]
        starts.append(starts[-1] + new)
        contexts.append(cached + new if row else 0)
    batch = StepBatch(
        positions=torch.tensor(positions, dtype=torch.int32),
        slots=torch.tensor(slots),
        query_starts=torch.tensor(starts, dtype=torch.int32),
        context_lens=torch.tensor(contexts, dtype=torch.int32),
        block_tables=torch.tensor(tables, dtype=torch.int32),
        max_query_len=max(b - a for a, b in pairwise(starts)),
        max_context_len=max(contexts),
        logit_rows=torch.tensor(starts[1:]) - 1,
    )
    return batch, kv, truth


def check_attention(rows, block_size, q_heads, kv_heads, head_dim, seed=0, dtype=torch.float32, tolerance=1e-5):
    """The output equals causal attention written out per token and head; nothing but the new slots is touched."""
    batch, kv, truth = random_step(rows, block_size, kv_heads, head_dim, seed, dtype)
    q = torch.randn((len(batch.slots), q_heads, head_dim), generator=torch.Generator().manual_seed(seed + 1)).to(dtype)
    new = [history[:, history.shape[1] - (row or (0, 1))[1] :] for history, row in zip(truth, rows, strict=True)]
    k, v = torch.cat(new, dim=1)
    before = kv.clone()
    out = OPS.attention(torch.cat((q, k, v), dim=1).flatten(1), kv, None, None, 1e-6, None, batch)
    out = out.unflatten(1, (q_heads, head_dim))
    token = 0
    for row, history in zip(rows, truth, strict=True):
        for offset in range((row or (0, 1))[1]):
            for head in range(q_heads):
                if row is None:
                    assert (out[token] == 0).all(), "a padding row attends to nothing"
                    continue
                seen = history[:, : row[0] + offset + 1, head // (q_heads // kv_heads)].double()
                weights = (seen[0] @ q[token, head].double() / math.sqrt(head_dim)).softmax(0)
                torch.testing.assert_close(out[token, head].double(), weights @ seen[1], atol=tolerance, rtol=tolerance)
            token += 1
    real = batch.slots[batch.slots >= 0]
    flat, before = kv.flatten(1, 2), before.flatten(1, 2)
    assert torch.equal(flat[:, real], torch.stack((k, v))[:, batch.slots >= 0])
    others = torch.ones(flat.shape[1], dtype=torch.bool).index_fill(0, real, False)
    torch.testing.assert_close(flat[:, others], before[:, others], rtol=0, atol=0, equal_nan=True)


row = st.none() | st.tuples(st.integers(0, 40), st.integers(1, 9)) | st.tuples(st.integers(0, 70), st.just(1))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(row, min_size=1, max_size=5).filter(any),
    block_size=st.sampled_from([1, 4, 16, 33]),
    heads=st.sampled_from([(9, 3, 8), (4, 4, 6), (5, 1, 16)]),
    seed=st.integers(0, 1000),
)
def test_any_mixture_of_prefills_chunks_decodes_and_padding(rows, block_size, heads, seed):
    check_attention(rows, block_size, *heads, seed=seed)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_half_precision_is_as_exact_as_its_rounding(dtype, tolerance):
    check_attention([(20, 1), (0, 7), (5, 3)], 4, 9, 3, 64, dtype=dtype, tolerance=tolerance)


def test_a_dot_product_beyond_float16_stays_finite():
    """Every q and k component 40: q.k is 102400, above float16's 65504; five equal scores average 1..5 to 3."""
    for new in (1, 5):  # as a decode and as a prefill
        batch, kv, _ = random_step([(5 - new, new)], 4, 1, 64, dtype=torch.float16)
        full = torch.full((5, 1, 64), 40.0, dtype=torch.float16)
        values = torch.arange(1.0, 6.0, dtype=torch.float16).view(5, 1, 1).expand(5, 1, 64)
        where = [int(batch.block_tables[0, p // 4]) * 4 + p % 4 for p in range(5 - new)]
        kv.flatten(1, 2)[:, where] = torch.stack((full, values))[:, : 5 - new]
        qkv = torch.cat((full, full, values), dim=1)[5 - new :].flatten(1)
        out = OPS.attention(qkv, kv, None, None, 1e-6, None, batch)
        assert out.isfinite().all() and (out[-1] - 3).abs().max() < 1e-3


def test_the_last_block_of_a_pool_beyond_32_bits_is_reached():
    """A pool of just over 2**31 elements; memory is touched only where it is used."""
    blocks = 2**31 // (2 * 16 * 3 * 64) + 2
    kv = torch.empty((2, blocks, 16, 3, 64), dtype=torch.float16)
    assert kv.numel() > 2**31
    slot = torch.tensor([blocks * 16 - 1])
    one, table = torch.ones(1, dtype=torch.int32), torch.tensor([[blocks - 1]], dtype=torch.int32)
    batch = StepBatch(one - 1, slot - 15, torch.tensor([0, 1]).int(), one, table, 1, 1, torch.tensor([0]))
    out = OPS.attention(torch.full((1, 15 * 64), 2.0, dtype=torch.float16), kv, None, None, 1e-6, None, batch)
    assert (out == 2).all() and (kv[:, -1, 0] == 2).all()


def test_norm_then_rotation_is_applied_to_q_and_k_and_neither_to_v():
    heads, kv_heads, dim = 4, 2, 8
    batch, kv, _ = random_step([(0, 3)], 4, kv_heads, dim)
    qkv, norm = torch.randn(3, heads + 2 * kv_heads, dim), torch.rand(dim) + 0.5
    angles = torch.rand(3, dim // 2) * 6
    rope = RopeTable(torch.cat((angles.cos(), angles.sin()), dim=-1))
    OPS.attention(qkv.flatten(1), kv, norm, norm * 2, 1e-6, rope, batch)
    k = qkv[:, heads : heads + kv_heads]
    k = k / (k.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm * 2
    pairs = torch.complex(k[..., : dim // 2], k[..., dim // 2 :]) * torch.polar(torch.ones(3, 1, 4), angles[:, None])
    stored = kv.flatten(1, 2)[:, batch.slots]
    torch.testing.assert_close(stored[0], torch.cat((pairs.real, pairs.imag), dim=-1))
    assert torch.equal(stored[1], qkv[:, -kv_heads:])


# Norms and products


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 9, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_are_the_same_for_few_rows_and_many(rows, dtype):
    x, weight, bias = (torch.randn(*shape).to(dtype) for shape in ((rows, 24), (30, 24), (30,)))
    truth = x.double() @ weight.double().t() + bias.double()
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    got = OPS.linear(x, weight, bias)
    assert got.dtype == dtype and got.is_contiguous()
    torch.testing.assert_close(got.double(), truth, atol=tolerance, rtol=tolerance)
    gate, up = (x.double() @ weight.double().t()).chunk(2, dim=-1)
    swiglu = gate / (1 + (-gate).exp()) * up
    torch.testing.assert_close(OPS.linear_silu_mul(x, weight).double(), swiglu, atol=2 * tolerance, rtol=2 * tolerance)


def test_norm_of_large_float16_numbers_does_not_overflow():
    x, weight = torch.full((2, 64), 30000.0, dtype=torch.float16), torch.ones(64, dtype=torch.float16)
    assert torch.equal(OPS.rms_norm(x, weight, 1e-6), torch.ones_like(x))
    normed, residual = OPS.add_rms_norm(x / 2, x / 2, weight, 1e-6)
    assert torch.equal(residual, x) and torch.equal(normed, torch.ones_like(x))


# Sampling


def params(rows, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=0, position=None, vocab_size=None):
    floats = [torch.full((rows,), value, dtype=torch.float32) for value in (temperature, top_p, min_p)]
    positions = torch.arange(rows) if position is None else torch.as_tensor(position)
    plain = top_k <= 0 and top_p >= 1 and min_p == 0
    return SamplingTensors(
        temperature=floats[0],
        top_k=torch.full((rows,), top_k, dtype=torch.int32),
        top_p=floats[1],
        min_p=floats[2],
        seed=torch.full((rows,), seed),
        position=positions,
        all_greedy=temperature == 0,
        plain=plain,
        vocab_size=vocab_size,
    )


LOGITS = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()


@pytest.mark.parametrize(("top_p", "count"), [(0.4, 1), (0.5, 1), (0.51, 2), (0.81, 3), (0.99, 4), (1.0, 4)])
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p, count):
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        keep = kept(LOGITS[:, order], params(1, top_p=top_p))[0]
        assert keep.sum() == count
        assert set(torch.tensor(order)[keep].tolist()) == set(range(count))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("top_p", [0.0, 1e-8, 1e-4])
def test_a_tiny_top_p_keeps_exactly_the_best(dtype, top_p):
    logits = torch.randn(3, 4096, generator=torch.Generator().manual_seed(0)).to(dtype)
    logits[:, 17] = 9
    assert kept(logits.float(), params(3, top_p=top_p)).nonzero().tolist() == [[0, 17], [1, 17], [2, 17]]
    assert sample(logits, params(3, top_p=top_p)).tolist() == [17] * 3


@pytest.mark.parametrize(("top_k", "count"), [(1, 1), (2, 2), (0, 4), (-1, 4), (10**6, 4)])
def test_top_k_of_any_size(top_k, count):
    assert kept(LOGITS, params(1, top_k=top_k)).sum() == count
    tied = torch.zeros(1, 4)
    assert kept(tied, params(1, top_k=top_k)).sum() == count


def test_ties_at_the_border_of_top_k_go_to_the_lower_ids():
    assert kept(torch.zeros(1, 4096), params(1, top_k=3)).nonzero().tolist() == [[0, 0], [0, 1], [0, 2]]


def test_top_p_one_keeps_even_what_float32_rounds_away():
    """The best token's probability rounds to 1, so the mass before every other token is 1 already."""
    logits = torch.full((1, 64), -40.0)
    logits[0, 5] = 0
    assert kept(logits, params(1, top_p=1.0)).all()
    assert kept(logits, params(1, top_p=0.999)).sum() == 1


def test_top_p_is_taken_of_what_top_k_left():
    """0.5 and 0.3 renormalise to 0.625 and 0.375, so top_p 0.6 keeps one."""
    assert kept(LOGITS, params(1, top_k=2, top_p=0.6)).tolist() == [[True, False, False, False]]


def test_min_p_is_relative_to_the_best():
    assert kept(LOGITS, params(1, min_p=0.29)).tolist() == [[True, True, True, False]]
    assert kept(LOGITS, params(1, min_p=1.0)).sum() == 1


def test_padded_vocabulary_is_never_drawn():
    logits = torch.zeros(10_000, 64)
    logits[:, 60:] = 50
    for temperature in (0.0, 1.0):
        drawn = sample(logits, params(10_000, temperature=temperature, vocab_size=60))
        assert drawn.max() < 60
    assert len(drawn.unique()) == 60


def test_greedy_takes_the_first_of_tied_maxima_also_beside_sampled_rows():
    logits = torch.tensor([[1.0, 7.0, 7.0, 0.0]]).repeat(200, 1)
    mixed = params(200)
    mixed.temperature[::2] = 0
    drawn = sample(logits, mixed)
    assert (drawn[::2] == 1).all() and set(drawn[1::2].tolist()) >= {1, 2}
    assert sample(logits, SamplingTensors.greedy(200)).tolist() == [1] * 200


def test_frequencies_follow_the_probabilities_and_the_temperature():
    count = 20_000
    for temperature in (0.5, 1.0, 2.0):
        drawn = sample(LOGITS.expand(count, -1), params(count, temperature=temperature))
        wanted = (LOGITS[0] / temperature).softmax(0)
        assert (drawn.bincount(minlength=4) / count - wanted).abs().max() < 0.015


def test_a_row_does_not_depend_on_its_neighbours():
    logits = torch.randn(12, 50)
    together = sample(logits, params(12, top_k=7, position=torch.arange(100, 112)))
    alone = [int(sample(logits[i : i + 1], params(1, top_k=7, position=[100 + i]))) for i in range(12)]
    assert together.tolist() == alone


@given(seed=st.integers(-(2**63), 2**63 - 1), position=st.integers(0, 2**40))
def test_the_random_number_is_a_hash_of_seed_and_position(seed, position):
    """The same arithmetic in Python's unbounded integers."""
    mask = 2**64 - 1
    z = (seed * 0x9E3779B97F4A7C15 + position * 0xD1B54A32D192ED03 + 0x2545F4914F6CDD1D) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    wanted = (((z ^ (z >> 31)) >> 40) + 0.5) / 2**24
    got = float(uniform(torch.tensor([seed]), torch.tensor([position])))
    assert got == wanted and 0 < got < 1


def test_random_numbers_are_spread_evenly():
    numbers = uniform(torch.zeros(50_000, dtype=torch.long), torch.arange(50_000)).numpy()
    counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
    assert abs(counts / 2500 - 1).max() < 0.08


@settings(max_examples=100, deadline=None)
@given(
    logits=st.lists(st.floats(-30, 30, width=32) | st.just(-math.inf), min_size=2, max_size=40).filter(
        lambda values: max(values) > -math.inf
    ),
    top_k=st.integers(-1, 50),
    top_p=st.floats(0, 1, width=32),
    min_p=st.floats(0, 1, width=32),
    temperature=st.floats(0.0625, 5, width=32),
    seed=st.integers(0, 99),
)
def test_a_drawn_token_is_always_one_that_was_kept(logits, top_k, top_p, min_p, temperature, seed):
    row = torch.tensor([logits])
    chosen = params(1, top_k=top_k, top_p=top_p, min_p=min_p, temperature=temperature, seed=seed)
    keep = kept(row / temperature, chosen)
    token = int(sample(row, chosen))
    assert keep.any() and keep[0, token] and row[0, token] > -math.inf


# The choice of operations


def test_an_unknown_name_is_refused_with_the_names_that_exist():
    with pytest.raises(ValueError, match=r"'cuda'.*auto, reference, triton, interpreter"):
        get_ops("cpu", "cuda")


def test_the_cpu_gets_the_reference_and_triton_needs_a_gpu():
    assert isinstance(get_ops("cpu"), ReferenceOps)
    with pytest.raises(RuntimeError, match="CUDA"):
        get_ops("cpu", "triton")


def test_a_subclass_with_one_method_is_a_complete_set():
    class Louder(ReferenceOps):
        def rms_norm(self, x, weight, eps):
            return 2 * super().rms_norm(x, weight, eps)

    ops = get_ops("cpu", Louder())
    normed, _ = ops.add_rms_norm(torch.ones(1, 4), torch.zeros(1, 4), torch.ones(4), 0.0)
    assert normed.tolist() == [[2.0] * 4]

"""Ranks share the heads and the sums, and together they say what one would; and swapping is weighed against recomputing."""

import dataclasses

import numpy as np
import pytest
import torch

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.bench.shapes import SHAPES
from minivllm.kernels.reference import ReferenceOps
from minivllm.lab.faults.tiny import tiny_model
from minivllm.lab.grading import grade
from minivllm.lab.ranks import RankedOps, kv_heads_per_rank
from minivllm.lab.swap import Swap
from minivllm.model import LoadedModel, ModelSpec, random_weights

PROMPTS = [list(range(30, 43)), list(range(100, 121)), [*range(30, 43), 9]]


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def qwen():
    """Qwen3's kind of layer, small: q and k are normalised, and there are 4 query heads over 2 of K and V."""
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = {**SHAPES["qwen3-0.6b"], **small, "head_dim": 16, "intermediate_size": 128, "vocab_size": 512}
    spec = ModelSpec.from_hf(config)
    return LoadedModel(spec, random_weights(spec, 1), None, {}, "small", "random weights")


def answers(ranks, model=None, meddle=None, prompts=PROMPTS, **settings):
    """The tokens of all prompts by so many ranks (None: the engine's own operations), and the operations."""
    model = model or tiny_model()
    ops = None if ranks is None else RankedOps(ranks, model)
    config = EngineConfig(**{"block_size": 4, "num_blocks": 48, "device": "cpu", **settings})
    with Engine(config, model=model, kernels=ops) as engine:
        if ops:
            ops.listen(engine)
        if meddle:
            meddle(ops)
        for prompt in prompts:
            engine.add(prompt, SamplingParams(temperature=0, max_tokens=12, ignore_eos=True))
        outputs = {output.request_id: output.outputs[0].token_ids for output in engine.run()}
        assert engine.audit() == []
    return outputs, ops


def deaf(number):
    """Let one rank miss every table entry that is added to a running request."""

    def meddle(ops):
        hear = ops.ranks[number].hear
        ops.ranks[number].hear = lambda plan: hear(dataclasses.replace(plan, grown=()))

    return meddle


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("make", [tiny_model, qwen])
def test_so_many_ranks_say_what_one_says(ranks, make):
    assert answers(ranks, make())[0] == answers(None, make())[0]


def test_they_say_so_under_chunks_hits_and_preemption():
    tight = {"num_blocks": 14, "max_num_batched_tokens": 7}
    assert answers(2, **tight)[0] == answers(None, **tight)[0]


def test_heads_are_dealt_out_and_a_kv_head_goes_to_several_ranks_where_there_are_too_few():
    two, four = RankedOps(2, tiny_model()).ranks, RankedOps(4, tiny_model()).ranks
    assert [(rank.q, rank.kv) for rank in two] == [(slice(0, 2), slice(0, 1)), (slice(2, 4), slice(1, 2))]
    assert [rank.kv for rank in four] == [slice(0, 1), slice(0, 1), slice(1, 2), slice(1, 2)]


def test_a_layer_needs_two_all_reduces_of_its_hidden_states():
    _, ops = answers(2, prompts=PROMPTS[:1])
    steps, tokens = 12, 13 + 11  # the last token is never fed back
    assert ops.all_reduces == 2 * 2 * steps
    assert ops.all_reduce_bytes == 2 * 2 * tokens * 64 * 4


def test_one_rank_has_nothing_to_add_up():
    assert answers(1)[1].all_reduces == 0


def test_all_ranks_have_the_same_tables_and_forget_who_left():
    _, ops = answers(4)
    assert ops.disagreements() == []
    assert [set(rank.tables) for rank in ops.ranks] == [{"A", "B", "C"}] * 4  # who ended leaves with the next plan


@pytest.mark.parametrize(("ranks", "number"), [(2, 1), (4, 3)])
def test_a_rank_that_misses_an_entry_makes_wrong_text_and_no_error(ranks, number):
    said, ops = answers(ranks, meddle=deaf(number))
    assert said != answers(ranks)[0]
    assert f"A, logical block 4: rank 0 has 15, rank {number} nothing" in ops.disagreements()


@pytest.mark.parametrize(("ranks", "what"), [(3, "4 query heads"), (8, "4 query heads")])
def test_heads_that_cannot_be_divided_are_refused(ranks, what):
    with pytest.raises(ValueError, match=f"{ranks} ranks cannot share {what}"):
        RankedOps(ranks, tiny_model())


def test_ranks_that_hear_no_plan_say_what_is_missing():
    ops = RankedOps(2, tiny_model())
    with Engine(EngineConfig(num_blocks=8, device="cpu"), model=tiny_model(), kernels=ops) as engine:
        engine.add([1, 2, 3])
        with pytest.raises(RuntimeError, match=r"call listen\(engine\)"):
            engine.step()


@pytest.mark.parametrize(
    ("kv_heads", "ranks", "expected"), [(8, 1, 8), (8, 2, 4), (8, 8, 1), (8, 16, 1), (3, 3, 1), (1, 4, 1)]
)
def test_kv_heads_are_shared_or_copied(kv_heads, ranks, expected):
    assert kv_heads_per_rank(kv_heads, ranks) == expected


@pytest.mark.parametrize(("kv_heads", "ranks"), [(8, 3), (8, 12), (3, 2), (0, 2), (8, 0)])
def test_kv_heads_that_cannot_be_shared_are_refused(kv_heads, ranks):
    with pytest.raises(ValueError, match=r"cannot share|allowed"):
        kv_heads_per_rank(kv_heads, ranks)


# -- swap ------------------------------------------------------------------------------------------------------------


def test_swapping_pays_for_bytes_and_for_every_block_and_recomputing_for_tokens():
    swap = Swap(layers=2, kv_bytes=10, link=100.0, transfer=1.0, prefill=3.0)
    assert swap.swap_seconds(8, 4) == 2 * (2 * 4 + 8 * 0.1)  # two blocks, four transfers each, out and back
    assert swap.swap_seconds(5, 4) == swap.swap_seconds(8, 4)  # whole blocks travel
    assert swap.recompute_seconds(8) == 24.0


def test_at_the_break_even_block_size_both_take_as_long():
    swap = Swap()
    size = round(swap.break_even())
    assert swap.swap_seconds(size * 8, size) == pytest.approx(swap.recompute_seconds(size * 8), rel=0.02)
    assert Swap(link=1e9).break_even() == float("inf")


@pytest.mark.parametrize("wrong", [{"layers": 0}, {"kv_bytes": 1.5}, {"link": 0.0}, {"prefill": -1.0}])
def test_a_machine_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Swap(**wrong)


@pytest.mark.parametrize("field", ["left", "joined", "grown"])
def test_a_rank_that_hears_half_of_a_plan_is_shown_and_breaks_nothing_else(field):
    ops = RankedOps(2, tiny_model())
    engine = Engine(EngineConfig(block_size=4, num_blocks=48, device="cpu"), model=tiny_model(), kernels=ops)
    ops.listen(engine)
    hear = ops.ranks[1].hear
    ops.ranks[1].hear = lambda plan: hear(dataclasses.replace(plan, **{field: ()}))
    found = []
    for n in range(3):
        engine.add(list(range(10 * n, 10 * n + 6)), SamplingParams(temperature=0, max_tokens=6, ignore_eos=True))
        while engine.has_unfinished:
            engine.step()
            found += ops.disagreements()
    assert found
    assert engine.audit() == []


def test_a_bias_is_added_once_and_not_once_per_rank():
    model = tiny_model()
    ops, layer = RankedOps(2, model), model.weights.layers[0]
    x, bias = torch.randn(3, layer.o.shape[1]), torch.randn(layer.o.shape[0])
    torch.testing.assert_close(ops.linear(x, layer.o, bias), ReferenceOps().linear(x, layer.o, bias))


def test_the_heads_of_a_rank_may_be_a_whole_number_of_numpy():
    def heads(kv_heads, ranks):
        return np.int64(kv_heads_per_rank(kv_heads, ranks))

    assert grade("11.kv_heads", heads).status == "✓"

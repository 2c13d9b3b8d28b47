"""Whole steps with fixed shapes: which sizes get a graph, and that a padded step does exactly what an eager one does."""

import dataclasses
import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minivllm import LLM, SamplingParams
from minivllm.bench.shapes import SHAPES
from minivllm.model.spec import ModelSpec
from minivllm.model.weights import LoadedModel, random_weights
from minivllm.runtime import collector, graphs
from minivllm.runtime.graphs import bucket, decode_sizes

ON_GPU = torch.cuda.is_available()
PROMPTS = [[5, 6, 7], [*range(20)], [9] * 17, [3]]
GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


@given(st.integers(1, 1024))
def test_every_batch_up_to_max_num_seqs_has_a_graph_and_none_is_larger(most):
    sizes = decode_sizes(most)
    assert sizes == sorted(set(sizes)) and sizes[-1] == most
    assert all(bucket(sizes, size) >= size for size in range(1, most + 1))
    assert bucket(sizes, most + 1) is None


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    small = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
    }
    config = {
        **SHAPES["qwen3-0.6b"],
        **small,
        "intermediate_size": 64,
        "vocab_size": 128,
        "max_position_embeddings": 128,
    }
    spec = dataclasses.replace(ModelSpec.from_hf(config), eos_token_ids=(), tie_embeddings=False)
    device = "cuda" if ON_GPU else "cpu"
    return LoadedModel(spec, random_weights(spec, 0, torch.float32, device), None, {}, "tiny", "made here")


def texts(llm: LLM) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in llm.generate(PROMPTS, GREEDY, use_tqdm=False)]


def make(model: LoadedModel, kernels: str) -> LLM:
    return LLM(
        model, num_blocks=40, block_size=4, max_model_len=64, max_num_seqs=4, kernels=kernels, enforce_eager=True
    )


def add_graphs(llm: LLM, seats: int) -> None:
    """Steps of fixed shape that are run as they are instead of being recorded."""
    runner = llm.engine.runner
    parts = (runner.decoder, runner.kv, runner.state, runner.vocab_size, seats)
    with torch.no_grad():
        runner.graphs = graphs.Graphs(*parts, lambda step: step)


def test_padded_steps_give_the_text_of_eager_ones_and_write_nowhere_else(model, monkeypatch):
    """The graph's body run as it is: on a machine without a GPU its kernels go through Triton's interpreter."""
    monkeypatch.setattr(graphs, "PREFILL_TOKENS", (32, 64))
    monkeypatch.setattr(graphs, "PREFILL_ROWS", (8,))
    with make(model, "reference") as plain, make(model, "triton" if ON_GPU else "interpreter") as fast:
        expected = texts(plain)
        assert len({tuple(text) for text in expected}) == len(PROMPTS)
        runner = fast.engine.runner
        runner.kv.fill_(float("nan"))
        add_graphs(fast, 4)
        assert runner.kv.isnan().all()  # captured with padding rows only
        recorder = fast.engine.record()
        for _ in range(2):  # the second time with prefix hits
            assert texts(fast) == expected
        taken = {event.block for events in recorder.ticks for event in events if event.kind == "take"}
        others = [block for block in range(40) if block not in taken]
        assert taken and others and runner.kv[:, :, others].isnan().all()


SAMPLED = [
    SamplingParams(
        temperature=0.5 + i / 3, seed=7 * i - 9, top_k=[0, 5, -1][i % 3], top_p=[1, 0.9][i % 2], min_p=[0, 0.05][i % 2],
        max_tokens=3 + i, ignore_eos=True, n=1 + (i == 2),
    )
    for i in range(7)
]  # fmt: skip
PLAIN = [SamplingParams(temperature=1.0, seed=i, max_tokens=3, ignore_eos=True) for i in range(7)]


@pytest.mark.skipif(ON_GPU, reason="the same tokens in float32 are promised by the interpreter; near ties differ there")
@pytest.mark.parametrize("options", [{}, {"num_blocks": 14}, {"max_num_batched_tokens": 9}], ids=str)
def test_padded_steps_draw_the_tokens_of_eager_ones_whatever_the_parameters(model, monkeypatch, options):
    """Seeds, temperatures and filters travel in one packed buffer; prompts of 4 and 8 rows leave one row to spare."""
    monkeypatch.setattr(graphs, "PREFILL_TOKENS", (16, 32, 64))
    monkeypatch.setattr(graphs, "PREFILL_ROWS", (4, 8))
    asked = [*PROMPTS, [4, 4], [8] * 9, [1]]
    said = []
    for kernels in ("reference", "interpreter"):
        how = {"num_blocks": 40, "block_size": 4, "max_model_len": 64, "max_num_seqs": 7, **options}
        with LLM(model, kernels=kernels, enforce_eager=True, **how) as llm:
            if kernels == "interpreter":
                add_graphs(llm, 7)
            outputs = [llm.generate(asked, params, use_tqdm=False) for params in (SAMPLED, PLAIN)]
            said.append([[one.token_ids for one in out.outputs] for batch in outputs for out in batch])
    assert said[0] == said[1]


@pytest.mark.parametrize("kernels", ["reference", "interpreter"])
def test_a_request_that_takes_the_name_and_the_place_of_another_has_its_own_parameters(model, monkeypatch, kernels):
    if ON_GPU and kernels == "interpreter":
        kernels = "triton"
    monkeypatch.setattr(graphs, "PREFILL_TOKENS", (32,))
    monkeypatch.setattr(graphs, "PREFILL_ROWS", (8,))
    hot = SamplingParams(temperature=3.0, seed=9, max_tokens=6, ignore_eos=True)
    said = []
    for before in (False, True):
        with make(model, kernels) as llm:
            engine = llm.engine
            if kernels != "reference":
                add_graphs(llm, 4)
            if before:
                engine.add([5, 6], dataclasses.replace(GREEDY, max_tokens=20), request_id="x")
                for _ in range(3):
                    engine.step()
                engine.abort("x")
            engine.add([5, 6], hot, request_id="x")
            engine.run()
            said.append(engine.result("x").outputs[0].token_ids)
    assert said[0] == said[1]


def test_graphs_keep_no_pool_alive(model):
    """A reference cycle would: the pool stays until the garbage collector comes by, and a frozen one never does."""
    with make(model, "triton" if ON_GPU else "interpreter") as llm:
        runner = llm.engine.runner
        held = graphs.Graphs(runner.decoder, runner.kv, runner.state, runner.vocab_size, 1, lambda step: step)
        pool = weakref.ref(runner.kv)
    gc.disable()
    try:
        del held
        assert pool() is None
    finally:
        gc.enable()


def test_the_collector_is_calm_until_the_last_engine_is_closed():
    before = gc.get_threshold()
    collector.calm()
    collector.calm()
    collector.restore()
    assert gc.get_threshold()[0] == collector.RARE and gc.get_freeze_count()
    collector.restore()
    assert gc.get_threshold() == before and not gc.get_freeze_count()

"""Whatever is given wrongly is refused in words, nothing stays queued or held, and the engine goes on."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from simulated import Letters, alone, finish, greedy, run, simulate, tokens_of

from minivllm import LLM, Engine, EngineConfig, SamplingParams
from minivllm.bench import engine as bench
from minivllm.core.eviction import LRU
from minivllm.core.policy import FCFS
from minivllm.kernels.reference import ReferenceOps
from minivllm.lab.faults.tiny import tiny_model
from minivllm.model import load
from minivllm.recorder import Recorder

WRONG = ["1", None, float("nan"), float("inf"), True, [1], {}, b"1", 1j, -(10**30), object()]
OPTIONAL = {"seed", "max_tokens", "logprobs", "prompt_logprobs"}
NUMBERS = [
    name for name, field in SamplingParams.__dataclass_fields__.items() if field.type in (int, float, int | None)
]
HUNDRED = 10**400


def named(value: object) -> str:
    """A test's name must be the same in every process: no addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", ascii(value))


def healthy(engine: Engine) -> None:
    """Nothing is queued or held, the books are right, and a request says what it says in a fresh engine."""
    assert engine.audit() == []
    assert not engine.has_unfinished
    assert engine.snapshot().used == 0
    assert tokens_of(run(engine, range(9), 4)) == alone(range(9), 4)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_of_the_sampling_parameters_is_a_number(name: str) -> None:
    assert len(NUMBERS) == 13
    for value in [*WRONG, np.array([1, 2]), -HUNDRED]:
        if value is None and name in OPTIONAL:
            continue
        with pytest.raises(ValueError, match=rf"SamplingParams.{name} is .*; allowed: a (whole )?number"):
            SamplingParams(**{name: value})


def test_what_counts_as_a_number_in_numpy_or_torch_is_taken_as_a_plain_one() -> None:
    params = SamplingParams(max_tokens=np.int64(3), top_k=torch.tensor(2), temperature=np.float32(0.5), n=np.uint8(2))  # type: ignore[arg-type]
    assert [type(v) for v in (params.max_tokens, params.top_k, params.temperature, params.n)] == [int, int, float, int]
    assert type(EngineConfig(block_size=np.int64(8)).block_size) is int  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("stop", [5, [1], b"x", [""], "", ["a", None], {"a": 1}]),
        ("stop_token_ids", [5, "12", [1.5], ["a"], [True], [-1], {1: 2}]),
        ("logit_bias", [5, [1], [(1, 2)], {1: "x"}, {1: float("nan")}, {1: None}, {"1": 1}, {True: 1}, {1: HUNDRED}]),
        ("ignore_eos", ["no", None, 1]),
    ],
)
def test_stops_biases_and_switches_of_another_kind_are_refused_by_name(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=f"SamplingParams.{name}"):
            SamplingParams(**{name: value})


def test_the_lists_and_dicts_of_the_sampling_parameters_are_copies() -> None:
    stop, bias = ["a"], {1: 2.0}
    params = SamplingParams(stop=stop, logit_bias=bias)
    stop.append("b")
    bias[5] = 1.0
    assert (params.stop_strings, params.logit_bias) == (("a",), {1: 2.0})
    assert SamplingParams(stop=None).stop_strings == ()


@pytest.mark.parametrize("name", EngineConfig.__dataclass_fields__)
def test_every_setting_of_another_kind_is_refused_by_name(name: str) -> None:
    optional = EngineConfig.__dataclass_fields__[name].default is None
    switch = isinstance(EngineConfig.__dataclass_fields__[name].default, bool)
    for value in WRONG:
        if (value is None and optional) or (value is True and (switch or name.endswith(("caching", "hits")))):
            continue
        with pytest.raises(ValueError, match=f"{name} is .*; allowed: "):
            EngineConfig(**{name: value})
        if name == "policy" and value is None:
            continue
        with pytest.raises(ValueError):
            simulate().reconfigure(**({"eviction": 5} if name == "eviction" and value is None else {name: value}))


@pytest.mark.parametrize(
    "prompt",
    [5, None, b"abc", memoryview(b"a"), [True], [1.0], ["a"], [None], [], {}, {1: 2}, {1}, [[1]], "text", [10**30], [-1],
     np.array([1.0]), np.array(5), np.array([[1]]), torch.tensor([[1], [2]]), torch.tensor([])],
    ids=named,
)  # fmt: skip
def test_a_prompt_is_text_or_token_ids(prompt: Any) -> None:
    engine = simulate()
    with pytest.raises(ValueError, match=r"prompt|token id"):
        engine.add(prompt)
    healthy(engine)


@pytest.mark.parametrize(
    "prompt", [np.arange(1, 4), torch.arange(1, 4), range(1, 4), (1, 2, 3), iter([1, 2, 3])], ids=named
)
def test_token_ids_may_come_in_anything_that_holds_whole_numbers(prompt: Any) -> None:
    assert run(simulate(), prompt).prompt_token_ids == [1, 2, 3]


@pytest.mark.parametrize(
    "how",
    [{"request_id": 5}, {"request_id": ""}, {"request_id": ["a"]}, {"priority": "high"}, {"priority": None},
     {"priority": 1.5}, {"cache_salt": 5}, {"adapter": ""}, {"params": "x"}, {"params": {}}],
    ids=named,
)  # fmt: skip
def test_ids_priorities_and_parameters_of_another_kind_are_refused(how: dict[str, Any]) -> None:
    engine = simulate(policy="priority")
    with pytest.raises(ValueError, match=r"id|priority|salt|adapter|params"):
        engine.add([1, 2], **how)
    assert engine.abort(how.get("request_id", "A")) is False
    healthy(engine)


class Ranks(FCFS):
    """A policy that is empty, hence false, as an object with a length may be."""

    def __len__(self) -> int:
        return 0

    def pick(self, waiting: Any, cache: Any, tick: int) -> Any:
        raise LookupError("asked")


def order(**methods: Callable[..., Any]) -> type[LRU]:
    return type("Order", (LRU,), methods)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"policy": object()}, "policy is .* no method pick, victim"),
        ({"policy": FCFS}, r"policy is the class FCFS.*make one: FCFS\(\)"),
        ({"eviction": LRU()}, "eviction is .*a class with insert"),
        ({"eviction": object}, "no method insert, remove, pop"),
        ({"hasher": "sha"}, "hasher is 'sha'; allowed: a function"),
        ({"runner": object()}, "runner is .* no method launch"),
        ({"kernels": object()}, "kernels is .* no method linear"),
        ({"config": {"block_size": 4}}, "config is .*EngineConfig"),
        ({"model": "packaged"}, r"use LLM\('packaged'\)"),
    ],
    ids=named,
)
def test_a_part_that_lacks_what_will_be_called_is_refused_at_the_door(part: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Engine(**part)
    if part.keys() & {"policy", "eviction"}:
        engine = simulate()
        with pytest.raises(ValueError, match=message):
            engine.reconfigure(**part)
        healthy(engine)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize(
    ("part", "error", "message"),
    [
        ({"policy": Ranks()}, LookupError, "asked"),
        ({"policy": type("P", (FCFS,), {"pick": lambda *_: None})()}, ValueError, "picked None"),
        (
            {"policy": type("P", (FCFS,), {"pick": lambda _, waiting, *__: waiting.pop(0)})()},
            ValueError,
            "leave the list",
        ),
        ({"policy": type("P", (FCFS,), {"victim": lambda *_: None})()}, ValueError, "victim is None"),
        ({"policy": type("P", (FCFS,), {"victim": lambda _, running: running.pop()})()}, ValueError, "leave the list"),
        ({"eviction": order(pop=lambda _: None)}, ValueError, "gave up None"),
        ({"eviction": order(remove=lambda *_: None)}, ValueError, "eviction order gave up"),
        ({"eviction": order(insert=lambda *_: 1 / 0)}, ZeroDivisionError, "division"),
        ({"hasher": lambda *_: None}, ValueError, "hasher returned None; allowed: bytes"),
        ({"hasher": lambda *_: 5}, ValueError, "hasher returned 5"),
    ],
    ids=named,
)
def test_a_part_that_does_wrong_is_named_and_can_be_replaced(
    part: dict[str, Any], error: type[Exception], message: str, recorded: bool
) -> None:
    engine = simulate(blocks=6, **part)
    if recorded:
        engine.record()
    for start in (0, 0, 50, 70, 90):
        engine.add(range(start, start + 9), greedy(6))
    with pytest.raises(error, match=message):
        engine.run(max_steps=200)
    assert engine.audit() == []
    engine.reconfigure(policy="fcfs", eviction="lru")
    if "hasher" in part:
        engine.reconfigure(enable_prefix_caching=False)
    finish(engine)
    healthy(engine)


def test_a_failing_eviction_order_loses_nobody_when_a_request_is_aborted() -> None:
    engine = simulate(eviction=order(insert=lambda *_: 1 / 0))
    gone, other = engine.add(range(9), greedy(6)), engine.add(range(50, 59), greedy(6))
    engine.step()
    with pytest.raises(ZeroDivisionError):
        engine.abort(gone)
    assert engine.audit() == []
    assert list(engine.scheduler.requests) == [other]
    assert engine.result(gone).outputs[0].finish_reason == "abort"
    engine.reconfigure(eviction="fifo")
    finish(engine)
    assert tokens_of(engine.result(other)) == alone(range(50, 59), 6)


def test_seats_cannot_be_taken_away_by_a_policy_that_names_nobody() -> None:
    engine = simulate(policy=type("P", (FCFS,), {"victim": lambda *_: None})())
    names = [engine.add(range(k, k + 5), greedy(6)) for k in (0, 50)]
    engine.step()
    with pytest.raises(ValueError, match="victim is None"):
        engine.reconfigure(max_num_seqs=1)
    assert engine.config.max_num_seqs == engine.scheduler.max_num_seqs == 256
    finish(engine)
    assert [len(tokens_of(engine.result(name))) for name in names] == [6, 6]


def test_a_pool_for_which_there_is_no_memory_leaves_the_engine_as_it_was() -> None:
    class Small(type(simulate().runner)):  # type: ignore[misc]
        def resize(self, num_blocks: int, block_size: int) -> None:
            self.tokens = self.pool = None  # the old one is gone before the new one fails
            if num_blocks > 100:
                raise MemoryError
            super().resize(num_blocks, block_size)

    engine = simulate(runner=Small(64, 4))
    recorder = engine.record()
    name = engine.add(range(9), greedy(6))
    engine.step()
    with pytest.raises(MemoryError):
        engine.reconfigure(num_blocks=1000)
    assert engine.config.num_blocks == 64
    finish(engine)
    assert tokens_of(engine.result(name)) == alone(range(9), 6)
    assert recorder.at(recorder.last_tick) == engine.snapshot()


def speaking() -> Engine:
    """A simulated engine whose tokens are letters."""

    class Tongue:
        spec, name, tokenizer = type("Spec", (), {"max_position": 512, "eos_token_ids": ()}), "letters", Letters()

    engine = Engine(EngineConfig(block_size=4, num_blocks=64), model=Tongue(), runner=simulate().runner)  # type: ignore[arg-type]
    engine.runner.vocab_size = 126
    return engine


def said(prompt: str) -> str:
    engine = speaking()
    name = engine.add(prompt, greedy(12))
    engine.run()
    return engine.result(name).outputs[0].text


def test_streams_side_by_side_lose_no_text() -> None:
    engine = speaking()
    streams = [engine.stream(engine.add(prompt, greedy(12))) for prompt in ("ab", "cd")]
    pieces = list(itertools.zip_longest(*streams, fillvalue=""))
    assert ["".join(column) for column in zip(*pieces, strict=True)] == [said("ab"), said("cd")]


@pytest.mark.parametrize("steps", [0, 3, 100])
def test_a_stream_gives_all_text_whoever_steps_the_engine(steps: int) -> None:
    engine = speaking()
    stream = engine.stream(engine.add("ab", greedy(12)))
    engine.run(steps)
    first = next(stream)
    engine.run(steps)
    assert first + "".join(stream) == said("ab")


def test_a_stream_that_is_left_takes_its_samples_along_and_nobody_else_of_its_name() -> None:
    engine = speaking()
    stream = engine.stream(engine.add("ab", greedy(12, n=3)))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert not engine.has_unfinished
    old = engine.stream(engine.add("ab", greedy(12), request_id="x"))
    next(old)
    engine.run()
    engine.add("cd", greedy(3), request_id="x")
    old.close()  # type: ignore[attr-defined]
    assert engine.has_unfinished


@pytest.mark.parametrize("steps", ["3", -1, 1.5, True])
def test_a_number_of_steps_is_a_whole_number(steps: Any) -> None:
    with pytest.raises(ValueError, match=r"max_steps is .*; allowed: a whole number of 0 or more"):
        simulate().run(steps)


def test_a_recording_with_events_missing_says_where(tmp_path: Path) -> None:
    engine = simulate()
    recorder = engine.record()
    run(engine, range(9), 3)
    recorder.save(tmp_path / "all.jsonl")
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    (tmp_path / "some.jsonl").write_text("\n".join(line for line in lines if '"arrive"' not in line))
    some = Recorder.load(tmp_path / "some.jsonl")
    with pytest.raises(ValueError, match=r"A.* does not fit what came before it: events are missing"):
        some.at(some.last_tick)
    for tick in ("1", None, 1.0, -1, 99):
        with pytest.raises(ValueError, match="was not recorded; recorded: 0 to 3"):
            recorder.at(tick)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def llm():
    torch.set_num_threads(1)
    with LLM(load("packaged"), num_blocks=64, max_model_len=256) as made:
        yield made


TURN = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    "messages",
    [5, None, "hi", TURN, iter([TURN]), ["hi"], [[]], [TURN, [TURN]], [[TURN], TURN], [{}], [{"role": "user"}],
     [{"role": "user", "content": None}], [{"role": 5, "content": "x"}], [("user", "hi")], [None],
     [{"role": "user", "content": "\ud800"}], [{"role": "\ud800", "content": "x"}]],
    ids=named,
)  # fmt: skip
def test_what_is_no_conversation_is_refused(llm: LLM, messages: Any) -> None:
    with pytest.raises(ValueError, match=r"messages is|a conversation is|not valid Unicode"):
        llm.chat(messages, use_tqdm=False)
    assert not llm.engine.has_unfinished


@pytest.mark.parametrize("prompts", [5, None, b"ab", {"a"}, 1.5, "\ud800", [1, "a"], [True]], ids=named)
def test_what_is_no_list_of_prompts_is_refused(llm: LLM, prompts: Any) -> None:
    with pytest.raises(ValueError, match="prompt"):
        llm.generate(prompts, use_tqdm=False)
    assert not llm.engine.has_unfinished


@pytest.mark.parametrize(
    "params", [5, "x", {"temperature": 0}, [None], [5], iter([greedy()]), SamplingParams], ids=named
)
def test_sampling_parameters_are_sampling_parameters(llm: LLM, params: Any) -> None:
    with pytest.raises(ValueError, match=r"sampling_params is .*; allowed: a SamplingParams, or a list"):
        llm.generate("a", params, use_tqdm=False)
    assert not llm.engine.has_unfinished


def test_arrays_of_token_ids_are_prompts(llm: LLM) -> None:
    ids = [100, 101, 102]
    one = llm.generate(ids, greedy(2), use_tqdm=False)[0].outputs[0].text
    for prompts in (np.array(ids), torch.tensor(ids), [np.int64(i) for i in ids], [np.array(ids)], torch.tensor([ids])):
        (output,) = llm.generate(prompts, greedy(2), use_tqdm=False)  # type: ignore[arg-type]
        assert output.outputs[0].text == one


def test_a_stream_nobody_reads_queues_nothing(llm: LLM) -> None:
    llm.stream("abc")
    assert not llm.engine.has_unfinished
    with pytest.raises(ValueError, match="n is 2; a stream is one completion"):
        next(llm.stream("abc", SamplingParams(n=2)))
    assert not llm.engine.has_unfinished


@pytest.mark.parametrize("seed", [-(1 << 63), -1, (1 << 63) - 1])
def test_every_seed_that_is_accepted_can_be_sampled_with(llm: LLM, seed: int) -> None:
    (output,) = llm.generate("abc", SamplingParams(seed=seed, n=3, max_tokens=2), use_tqdm=False)
    assert len(output.outputs) == 3


def test_a_pool_larger_than_the_memory_is_refused_on_a_running_engine_too(llm: LLM) -> None:
    name = llm.engine.add("abc", greedy(4))
    llm.engine.step()
    with pytest.raises(ValueError, match="at most 1456 blocks"):
        llm.engine.reconfigure(num_blocks=10**7)
    llm.engine.run()
    assert len(tokens_of(llm.engine.result(name))) == 4


@pytest.mark.parametrize("token", [10**9, -5, 49152])
def test_kernels_that_sample_no_token_of_the_vocabulary_are_named(llm: LLM, token: int) -> None:
    class Wild(ReferenceOps):
        def sample(self, logits: torch.Tensor, params: Any) -> torch.Tensor:
            return torch.full((len(logits),), token)

    with LLM(llm.engine.model, num_blocks=8, max_model_len=64, kernels=Wild()) as wild:
        with pytest.raises(ValueError, match=f"the kernels sampled token {token} for A; allowed: 0 to 49151"):
            wild.generate("abc", use_tqdm=False)
        assert wild.engine.audit() == []
        assert not wild.engine.has_unfinished


def test_a_budget_beyond_what_memory_was_set_aside_for_is_refused():
    engine = Engine(EngineConfig(max_num_batched_tokens=100))
    engine.runner.max_num_batched_tokens = 100  # as a runner on a GPU has it
    with pytest.raises(ValueError, match="steps of 100 tokens"):
        engine.reconfigure(max_num_batched_tokens=101)
    assert engine.config.max_num_batched_tokens == 100
    engine.reconfigure(max_num_batched_tokens=50)
    engine.reconfigure(max_num_batched_tokens=100)


def test_a_context_too_short_for_the_steps_around_it_is_refused():
    with pytest.raises(ValueError, match="context is 20; the steps that are measured need at least 36"):
        list(bench.latency(None, None, batches=(1,), context=20, steps=60))


def test_cold_prompts_of_the_prefix_benchmark_find_nothing_cached_and_warm_ones_their_whole_head(monkeypatch):
    cached = []
    with LLM(tiny_model(), device="cpu", block_size=4, num_blocks=64) as llm:
        generate = llm.generate

        def watched(*args, **kwargs):
            outputs = generate(*args, **kwargs)
            cached.append([output.num_cached_tokens for output in outputs])
            return outputs

        monkeypatch.setattr(llm, "generate", watched)
        (row,) = bench.prefix(llm, cases=((3, 8, 2),), repeats=2)
    assert cached == [[0, 0, 0], [0], [8, 8, 8]] * 3
    assert (row["prompts"], row["shared"], row["own"]) == (3, 8, 2)

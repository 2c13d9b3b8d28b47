"""On a GPU: graphs, overlap and prefix hits change the speed, never the text; and memory comes back."""

import random
from dataclasses import fields, replace

import pytest
import torch

from minivllm import LLM, SamplingParams
from minivllm.bench.shapes import dummy_model

pytestmark = pytest.mark.gpu
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


def make(device: str = "cuda", **options) -> LLM:
    model = dummy_model("qwen3-0.6b", device, torch.bfloat16, layers=4)
    head = (
        torch.randn(model.weights.embed.shape, generator=torch.Generator(device).manual_seed(1), device=device) * 0.05
    )
    model = replace(model, weights=replace(model.weights, lm_head=head.bfloat16()))  # tied, it only repeats the prompt
    options = {"num_blocks": 2000, "max_model_len": 2048, "max_num_seqs": 40, **options}
    return LLM(model, device=device, **options)


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    head = [rng.randrange(1000) for _ in range(100)]
    return [
        head[: rng.choice((0, 50, 100))] + [rng.randrange(1000) for _ in range(rng.randint(1, 300))]
        for _ in range(count)
    ]


def differences(expected, found, llm: LLM) -> list[tuple[int, int, float]]:
    """(request, step, top-2 gap) of each first difference, the gap taken from the eager engine's own logprobs."""
    out = []
    for index, (a, b) in enumerate(zip(expected, found, strict=True)):
        ids = [a.outputs[0].token_ids, b.outputs[0].token_ids]
        for step, (x, y) in enumerate(zip(*ids, strict=True)):
            if x != y:
                prompt = a.prompt_token_ids + ids[0][:step]
                report = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=1, logprobs=2), use_tqdm=False)
                best = sorted((entry.logprob for entry in report[0].outputs[0].logprobs[0].values()), reverse=True)
                out.append((index, step, best[0] - best[1]))
                break
    return out


@pytest.fixture(scope="module")
def eager():
    """A plain engine, its text, and its noise: how far a token's log-probability moves when it is prefilled, not decoded."""
    with make(enforce_eager=True, async_scheduling=False, enable_prefix_caching=False) as llm:
        outputs = llm.generate(prompts(30), replace(GREEDY, logprobs=0), use_tqdm=False)
        again = replace(GREEDY, max_tokens=1, prompt_logprobs=0)
        noise = 0.0
        for output in outputs[:10]:
            ids = output.outputs[0].token_ids
            (whole,) = llm.generate([output.prompt_token_ids + ids], again, use_tqdm=False)
            for token, *both in zip(ids, output.outputs[0].logprobs, whole.prompt_logprobs[-len(ids) :], strict=True):
                first, second = (entry[token].logprob for entry in both)
                noise = max(noise, abs(first - second))
        assert 0 < noise < 0.5
        yield llm, outputs, 2 * noise  # both of the two best may move


@pytest.mark.parametrize(
    "options",
    [
        {"async_scheduling": False},
        {},
        {"block_size": 64, "num_blocks": 500},
        {"num_blocks": 60},
        {"max_num_batched_tokens": 100},
    ],
    ids=["graphs", "graphs and overlap", "blocks of 64", "preemption", "chunks of 100"],
)
def test_the_fast_path_gives_the_eager_text_up_to_near_ties(eager, options):
    reference, expected, bound = eager
    with make(**options) as llm:
        for _ in range(2):  # the second time every prompt is a prefix hit
            found = llm.generate(prompts(30), GREEDY, use_tqdm=False)
            wide = [d for d in differences(expected, found, reference) if d[2] > bound]
            assert not wide, (wide, bound)
            assert llm.engine.audit() == []
        assert (
            all(o.num_cached_tokens > 0 for o in found if len(o.prompt_token_ids) > llm.engine.config.block_size)
            or options
        )


def logprobs(model, **options) -> torch.Tensor:
    """The log-probability of every token of a fixed prompt, in chunks, so that most of them read the pool."""
    with LLM(model, num_blocks=64, max_model_len=512, max_num_batched_tokens=70, **options) as llm:
        rng = random.Random(1)
        ids = [rng.randrange(1000) for _ in range(300)]
        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
        (output,) = llm.generate([ids], params, use_tqdm=False)
        return torch.tensor([entry[t].logprob for t, entry in zip(ids[1:], output.prompt_logprobs[1:], strict=True)])


def everywhere(weights, change):
    """The same weights with `change` applied to every tensor."""
    if isinstance(weights, torch.Tensor):
        return change(weights)
    if isinstance(weights, tuple):
        return tuple(everywhere(part, change) for part in weights)
    if weights is None:
        return None
    return replace(weights, **{f.name: everywhere(getattr(weights, f.name), change) for f in fields(weights)})


def test_the_random_qwen3_shape_computes_what_float32_on_the_cpu_does():
    model = dummy_model("qwen3-0.6b", "cpu", torch.bfloat16, layers=4)
    exact = logprobs(
        replace(model, weights=everywhere(model.weights, torch.Tensor.float)), device="cpu", dtype="float32"
    )
    found = logprobs(replace(model, weights=everywhere(model.weights, torch.Tensor.cuda)), device="cuda")
    assert (found - exact).square().mean().sqrt() < 0.05, (found - exact).abs().max()


def test_smollm2_computes_what_float32_on_the_cpu_does():
    exact = logprobs("packaged", device="cpu", dtype="float32")
    found = logprobs("packaged", device="cuda", dtype="bfloat16")
    assert (found - exact).square().mean().sqrt() < 0.1, (found - exact).abs().max()


def test_sampling_does_not_depend_on_the_neighbours():
    """The noise of bf16 shifts a flat cumulative distribution by a few of 151,936 tokens; another u lands anywhere."""
    drawn = [SamplingParams(temperature=0.8, seed=seed, max_tokens=1, ignore_eos=True) for seed in range(40)]
    mine = prompts(40, seed=1)
    with make() as llm:

        def tokens(outputs):
            return [output.outputs[0].token_ids[0] for output in outputs]

        alone = []
        for ids, params in zip(mine, drawn, strict=True):
            alone += tokens(llm.generate([ids], params, use_tqdm=False))
        together = tokens(llm.generate(mine, drawn, use_tqdm=False))
        again = tokens(llm.generate(mine[::-1], drawn[::-1], use_tqdm=False))[::-1]
    assert len(set(alone)) > 20
    for found in (together, again):
        assert max(abs(a - b) for a, b in zip(alone, found, strict=True)) < 1500, (alone, found)


def test_a_reader_who_leaves_after_every_output_reads_the_eager_text_up_to_near_ties(eager):
    reference, expected, bound = eager
    with make() as llm:
        engine = llm.engine
        names = [engine.add(prompt, GREEDY) for prompt in prompts(30)]
        while engine.has_unfinished:
            for _ in engine.outputs():
                break
        wide = [d for d in differences(expected, [engine.result(name) for name in names], reference) if d[2] > bound]
        assert not wide, (wide, bound)


@pytest.mark.parametrize("overlap", [False, True], ids=["step by step", "overlapped"])
def test_a_thousand_random_requests_with_aborts_and_preemptions_leave_nothing_behind(overlap):
    rng = random.Random(3)
    with make(num_blocks=150) as llm:
        engine = llm.engine
        pending = prompts(1000, seed=5)
        while pending or engine.has_unfinished:
            arrive(engine, pending, rng)
            for looks, _ in enumerate(engine.outputs() if overlap else [engine.step()]):
                arrive(engine, pending, rng)
                if engine.scheduler.requests and rng.random() < 0.1:
                    engine.abort(rng.choice(list(engine.scheduler.requests)))
                if (looks or engine.tick) % 50 == 0:
                    assert engine.audit() == []
        assert engine.audit() == [] and engine.snapshot().used == 0


def arrive(engine, pending: list[list[int]], rng: random.Random) -> None:
    """A few of `pending` join."""
    for _ in range(rng.randint(0, 4)):
        if pending:
            params = SamplingParams(temperature=rng.choice((0.0, 1.0)), max_tokens=rng.randint(1, 20))
            engine.add(pending.pop(), params)


def test_closing_gives_the_memory_back_every_time():
    free = []
    for _ in range(4):
        with make(num_blocks=8000) as llm:
            llm.generate(prompts(4), GREEDY, use_tqdm=False)
        del llm
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free.append(torch.cuda.mem_get_info()[0])
    assert min(free[1:]) > free[0] - (200 << 20), free


def test_each_engine_of_a_process_gets_its_share_of_the_card():
    """What the first one holds is not free any more, but it does not count as the second one's own."""
    total = torch.cuda.mem_get_info()[1]
    share = {"num_blocks": None, "gpu_memory_utilization": 0.25}
    with make(**share) as one, make(**share) as other:
        pools = [llm.engine.runner.kv.nbytes for llm in (one, other)]
        assert min(pools) > 0.15 * total and max(pools) - min(pools) < 0.02 * total
        texts = [llm.generate(prompts(4), GREEDY, use_tqdm=False)[-1].outputs[0].token_ids for llm in (one, other)]
    assert texts[0] == texts[1]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("enforce_eager", [False, True])
def test_engines_on_two_gpus_take_turns(enforce_eager):
    options = {"enforce_eager": enforce_eager, "enable_prefix_caching": False}
    with make("cuda:0", **options) as one, make("cuda:1", **options) as other:
        expected = [llm.generate(prompts(6), GREEDY, use_tqdm=False) for llm in (one, other)]
        engines = [one.engine, other.engine]
        names = [[engine.add(prompt, GREEDY) for prompt in prompts(6)] for engine in engines]
        while any(engine.has_unfinished for engine in engines):
            for engine in engines:
                engine.step()
        for engine, known, outputs in zip(engines, names, expected, strict=True):
            found = [engine.result(name).outputs[0].token_ids for name in known]
            assert found == [output.outputs[0].token_ids for output in outputs]

"""Whole-engine measurements: nano-vllm's throughput workload, decode steps, and the time to the first token."""

import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Any

import torch

from minivllm.bench import roofline, shapes
from minivllm.llm import LLM
from minivllm.request import SamplingParams

Row = dict[str, Any]
PREFIX_CASES = ((1, 1500, 30), (1, 3800, 30), (16, 1500, 30), (128, 1500, 30))
"""Prompts at once, shared tokens, own tokens. A CPU is asked for the first only: the last takes it many minutes."""


def nano_workload(requests: int = 256, longest: int = 1024, vocab: int = 10_000) -> list[tuple[list[int], int]]:
    """nano-vllm's benchmark by its seed: prompts of 100–1024 random tokens, outputs of 100–1024."""
    random = Random(0)
    prompts = [[random.randint(0, vocab) for _ in range(random.randint(100, longest))] for _ in range(requests)]
    return [(prompt, random.randint(100, longest)) for prompt in prompts]


def throughput(llm: LLM, ceilings: roofline.Ceilings, *, requests: int, longest: int, repeats: int) -> Iterator[Row]:
    """Complete the workload; tokens per second, and which fraction of the floor that is."""
    work = nano_workload(requests, longest, min(10_000, llm.engine.runner.vocab_size - 1))
    prompts = [prompt for prompt, _ in work]
    params = [SamplingParams(temperature=0.6, ignore_eos=True, max_tokens=output) for _, output in work]
    _warm_up(llm)
    seconds = []
    for _ in range(repeats):
        llm.engine.reset_prefix_cache()
        began = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds.append(time.perf_counter() - began)
        produced = sum(len(output.outputs[0].token_ids) for output in outputs)
    sizes = [(len(prompt), output) for prompt, output in work]
    floor = roofline.floor(_spec(llm), sizes, ceilings, *_itemsizes(llm))
    median = statistics.median(seconds)
    yield {
        "what": "throughput", "requests": requests, "tokens in": sum(map(len, prompts)), "tokens out": produced,
        "seconds": [round(s, 3) for s in seconds], "tok/s": round(produced / median), "floor s": round(floor, 3),
        "of floor": round(floor / median, 3),
    }  # fmt: skip


def latency(
    llm: LLM, ceilings: roofline.Ceilings, *, batches: tuple[int, ...], context: int, steps: int
) -> Iterator[Row]:
    """Milliseconds of a decode step at several batch sizes: median of `steps`, the middle one of which has `context`.

    Raises `ValueError` for a context that so many steps cannot lie around, and where the batch does not fit.
    """
    _check_context(context, steps // 2 + 6)
    spec, (size, pool_size) = _spec(llm), _itemsizes(llm)
    for batch in batches:
        llm.engine.reset_prefix_cache()
        params = SamplingParams(temperature=0.6, ignore_eos=True, max_tokens=steps + 16)
        for index in range(batch):
            llm.engine.add([index % 1000 + 1] + [7] * (context - steps // 2 - 6), params)
        while any(r.num_computed < r.prompt_len for r in llm.engine.scheduler.requests.values()):
            llm.engine.step()
        for _ in range(4):
            llm.engine.step()
        _synchronise(llm)
        overlapped = _overlapped_step(llm, steps)
        if len(llm.engine.scheduler.running) < batch:
            raise ValueError(
                f"{batch} requests of {context} tokens do not run side by side here: use a larger num_blocks"
            )
        limit = shapes.bytes_of_weights(spec, size) + batch * context * shapes.kv_bytes(spec, pool_size)
        yield {
            "what": "decode step", "batch": batch, "context": context, "ms": round(overlapped, 3),
            "limit ms": round(1e3 * limit / ceilings.read, 3), "tok/s": round(1e3 * batch / overlapped),
        }  # fmt: skip
        for name in list(llm.engine.scheduler.requests):
            llm.engine.abort(name)


def prefix(llm: LLM, *, cases: tuple[tuple[int, int, int], ...], repeats: int = 5) -> Iterator[Row]:
    """Time to the first token of `(prompts at once, shared tokens, own tokens)`, with a cold and with a warm cache.

    Warm prompts begin with one cached head; cold ones with a head each, so that none can use another's blocks.
    """
    one = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
    for count, shared, own in cases:
        random = Random(count + shared)

        def tokens(length: int, random: Random = random) -> list[int]:
            return [random.randrange(llm.engine.runner.vocab_size) for _ in range(length)]

        def timed(heads: list[list[int]], own: int = own, tokens: Callable[[int], list[int]] = tokens) -> float:
            batch = [head + tokens(own) for head in heads]
            _synchronise(llm)
            began = time.perf_counter()
            llm.generate(batch, one, use_tqdm=False)
            return 1e3 * (time.perf_counter() - began)

        cold, warm = [], []
        for _ in range(repeats + 1):
            llm.engine.reset_prefix_cache()
            cold.append(timed([tokens(shared) for _ in range(count)]))
            llm.engine.reset_prefix_cache()
            head = tokens(shared)
            llm.generate([[*head, 1]], one, use_tqdm=False)
            warm.append(timed([head] * count))
        cold_ms, warm_ms = statistics.median(cold[1:]), statistics.median(warm[1:])  # the first ones warm up
        yield {
            "what": "time to first token", "prompts": count, "shared": shared, "own": own, "cold ms": round(cold_ms, 2),
            "warm ms": round(warm_ms, 2), "ratio": round(cold_ms / warm_ms, 1),
        }  # fmt: skip


def profile(llm: LLM, batch: int, context: int, steps: int = 10) -> Iterator[Row]:
    """Where a decode step's time goes: GPU time per kernel, and what of a step no kernel fills: the host's time.

    The step is timed before the profiler is switched on, which slows the host. Raises `ValueError` without a GPU.
    """
    if not llm.engine.runner.asynchronous:
        raise ValueError("profile shows the kernels of a GPU, and this engine runs on the CPU; try latency")
    _check_context(context, steps + 5)
    params = SamplingParams(temperature=0.6, ignore_eos=True, max_tokens=2 * steps + 32)
    for index in range(batch):  # timed just below `context`, then profiled just above
        llm.engine.add([index % 1000 + 1] + [7] * (context - steps - 5), params)
    while any(r.num_computed < r.prompt_len for r in llm.engine.scheduler.requests.values()):
        llm.engine.step()
    _overlapped_step(llm, 4)
    ms = _overlapped_step(llm, steps)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        _overlapped_step(llm, steps)
    for event in sorted(seen.key_averages(), key=lambda e: -e.self_device_time_total):
        per_step = event.self_device_time_total / steps / 1e3
        if event.count >= steps and per_step >= 5e-5:
            each = {"ms per step": round(per_step, 4), "calls": event.count // steps}
            yield {"what": "kernel", "name": event.key[:60], **each}
    busy, until = 0.0, 0.0  # kernels overlap where one may start before its predecessor has ended
    on_gpu = (e.time_range for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA)
    for begin, end in sorted((span.start, span.end) for span in on_gpu):
        busy, until = busy + max(0.0, end - max(begin, until)) / steps / 1e3, max(end, until)
    yield {"what": "step", "batch": batch, "ms": round(ms, 3), "gpu ms": round(busy, 3), "gap ms": round(ms - busy, 3)}
    for name in list(llm.engine.scheduler.requests):
        llm.engine.abort(name)


def _overlapped_step(llm: LLM, steps: int) -> float:
    """Median milliseconds between two results when the next step is always launched before the last is read."""
    engine = llm.engine
    flying = None
    times = []
    for _ in range(steps):
        plan = engine.scheduler.plan()
        ticket = engine.runner.launch(plan)
        if flying is not None:
            engine.scheduler.collect(flying[0], engine.runner.wait(flying[1]).tokens)
            times.append(time.perf_counter())
        flying = (plan, ticket)
    assert flying is not None
    engine.scheduler.collect(flying[0], engine.runner.wait(flying[1]).tokens)
    return 1e3 * statistics.median(b - a for a, b in pairwise(times))


def _check_context(context: int, least: int) -> None:
    if context < least:
        raise ValueError(f"context is {context}; the steps that are measured need at least {least}")


def _warm_up(llm: LLM) -> None:
    params = SamplingParams(temperature=0.6, ignore_eos=True, max_tokens=8)
    llm.generate([[1, 2, 3, 4, 5]] * 2, params, use_tqdm=False)
    llm.generate([list(range(1, 500))] * 40, params, use_tqdm=False)


def _synchronise(llm: LLM) -> None:
    if llm.engine.runner.asynchronous:
        torch.cuda.synchronize()


def _spec(llm: LLM) -> Any:
    assert llm.engine.model is not None
    return llm.engine.model.spec


def _itemsizes(llm: LLM) -> tuple[int, int]:
    """Bytes of a weight, and of a number in the pool."""
    assert llm.engine.model is not None
    return llm.engine.model.weights.embed.element_size(), llm.engine.runner.dtype.itemsize  # type: ignore[attr-defined]

"""Plays a workload to an engine: calls arrive on the device's clock, follow-up turns after the answer they follow."""

import heapq
from collections.abc import Callable, Iterable
from itertools import count

from minivllm.config import EngineConfig
from minivllm.core.policy import Policy
from minivllm.engine import Engine
from minivllm.lab.device import TimedRunner, TimeModel
from minivllm.lab.workloads import Call, tokens_of, turns
from minivllm.metrics import Metrics
from minivllm.recorder import Recorder
from minivllm.request import SamplingParams
from minivllm.runtime.sim import SimRunner


def serve(
    config: EngineConfig, calls: Iterable[Call], *, time: TimeModel | None = None, policy: Policy | None = None
) -> tuple[Metrics, Recorder]:
    """Simulate a server with `config` under `calls` to the end: metrics, in simulated seconds, and recording."""
    blocks = config.num_blocks
    if blocks is None:
        raise ValueError("a simulated server needs a pool: give num_blocks in its EngineConfig")
    runner = TimedRunner(SimRunner(blocks, config.block_size), time or TimeModel())
    engine = Engine(config, runner=runner, policy=policy)
    metrics = Metrics(engine, clock=runner.now)
    recorder = engine.record()
    play(engine, calls, runner)
    return metrics, recorder


def play(
    engine: Engine, calls: Iterable[Call], runner: TimedRunner, on_tick: Callable[[], None] | None = None
) -> dict[str, list[int]]:
    """Run `engine` until all calls are answered: the tokens of each. `on_tick` is called after every step.

    Raises `ValueError` for a call that follows one that is not there, or has another's id.
    """
    first, followers = turns(calls)
    order = count()
    due = [(call.at, next(order), call, list[int]()) for call in first]
    heapq.heapify(due)
    answers: dict[str, list[int]] = {}
    while due or engine.has_unfinished:
        if not engine.has_unfinished:
            runner.seconds = max(runner.seconds, due[0][0])
        while due and due[0][0] <= runner.seconds:
            _, _, call, history = heapq.heappop(due)
            params = SamplingParams(max_tokens=call.output, temperature=0.0, ignore_eos=True)
            prompt = history + tokens_of(call.prompt, engine.runner.vocab_size)
            engine.add(prompt, params, request_id=call.id, priority=call.priority)
        for name in engine.step().finished:
            output = engine.result(name)
            answers[name] = output.outputs[0].token_ids
            for call in followers.get(name, ()):
                history = output.prompt_token_ids + answers[name]
                heapq.heappush(due, (runner.seconds + call.at, next(order), call, history))
        if on_tick:
            on_tick()
    return answers

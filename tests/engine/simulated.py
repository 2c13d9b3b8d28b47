"""Engines without a model, and runners that misbehave on purpose: what the tests of core and engine share.

The simulation reads every slot back through the block table and makes the next token a hash of what it read, so "same
tokens as alone in a fresh engine" is a strong statement: no wrong table, stale block or early sharing can hide from it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.core.plan import Plan
from minivllm.output import RequestOutput
from minivllm.runtime.sim import SimRunner
from minivllm.runtime.ticket import StepResult


def simulate(*, bs: int = 4, blocks: int = 64, budget: int = 8192, **options: Any) -> Engine:
    """A simulated engine. `options` are `EngineConfig` fields, or the constructor's own (policy objects and so on)."""
    parts = {name: options.pop(name) for name in ("runner", "hasher", "model") if name in options}
    for name in ("policy", "eviction"):
        if name in options and not isinstance(options[name], str):
            parts[name] = options.pop(name)
    return Engine(EngineConfig(block_size=bs, num_blocks=blocks, max_num_batched_tokens=budget, **options), **parts)


def greedy(max_tokens: int | None = 1, **more: Any) -> SamplingParams:
    """Temperature 0: the text is a function of the tokens alone."""
    return SamplingParams(temperature=0, max_tokens=max_tokens, **more)


def run(engine: Engine, ids: Sequence[int], max_tokens: int | None = 1, **how: Any) -> RequestOutput:
    """Drive one greedy request to its end, in at most 10,000 steps."""
    name = engine.add(ids, greedy(max_tokens), **how)
    finish(engine)
    return engine.result(name)


def finish(engine: Engine, most: int = 10_000) -> int:
    """Step until nothing is left to do; the number of steps. Bookkeeping is audited after each one."""
    steps = 0
    while engine.has_unfinished:
        engine.step()
        steps += 1
        assert steps <= most, f"still unfinished after {most} steps: {engine.scheduler.requests}"
        assert engine.audit() == []
    return steps


def tokens_of(output: RequestOutput) -> list[int]:
    """The generated ids of a request with one sample."""
    return output.outputs[0].token_ids


def alone(ids: Sequence[int], max_tokens: int | None = 1, **options: Any) -> list[int]:
    """What a request says in a fresh engine of its own with plenty of room."""
    return tokens_of(run(simulate(**{"blocks": 512, **options}), ids, max_tokens))


def used(engine: Engine) -> int:
    """Blocks with a reference."""
    return sum(ref > 0 for ref in engine.scheduler.cache.pool.ref)  # type: ignore[attr-defined]


def available(engine: Engine) -> int:
    """Blocks that can be had now."""
    return engine.scheduler.cache.pool.available  # type: ignore[attr-defined]


def published(engine: Engine) -> int:
    """Blocks that can be found by hash."""
    return len(engine.scheduler.cache.index)  # type: ignore[attr-defined]


def table(engine: Engine, name: str) -> list[int]:
    """The block table of a live request."""
    return list(engine.scheduler.requests[name].table)


class Scripted(SimRunner):
    """Says `script[0]`, `script[1]`, … after any prompt of `prompt_len` tokens, and 0 when the script is over."""

    def __init__(self, num_blocks: int, block_size: int, script: Sequence[int], prompt_len: int) -> None:
        super().__init__(num_blocks, block_size)
        self.script, self.prompt_len = list(script), prompt_len

    def choose(self, values: np.ndarray, salt: int) -> int:
        at = len(values) - self.prompt_len
        return self.script[at] if at < len(self.script) else 0


class Interrupted(SimRunner):
    """Raises `KeyboardInterrupt` in the launches whose numbers (from 1) are in `when`, before or after the work."""

    def __init__(self, num_blocks: int, block_size: int, when: Sequence[int] = (), after: bool = False) -> None:
        super().__init__(num_blocks, block_size)
        self.when, self.after, self.launches = set(when), after, 0

    def launch(self, plan: Plan) -> StepResult:
        self.launches += 1
        broken = self.launches in self.when
        if broken and not self.after:
            raise KeyboardInterrupt
        result = super().launch(plan)
        if broken:
            raise KeyboardInterrupt
        return result


class Delayed(SimRunner):
    """A device that is busy: `run()` keeps one ticket in flight. Fails if tickets are waited for out of order."""

    asynchronous = True

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.in_flight: list[StepResult] = []
        self.most_in_flight = 0

    def launch(self, plan: Plan) -> StepResult:
        result = super().launch(plan)
        if plan.rows:
            self.in_flight.append(result)
        self.most_in_flight = max(self.most_in_flight, len(self.in_flight))
        return result

    def wait(self, ticket: StepResult) -> StepResult:
        assert not ticket.tokens or ticket is self.in_flight.pop(0)
        return ticket


class Letters:
    """A tokenizer for tests: token 97 is "a", and so on; ids below 32 are special and have no text."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return "".join(chr(i) for i in ids if i >= 32)

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]


def record_plans(engine: Engine) -> list[Plan]:
    """Every plan the engine launches from now on."""
    plans: list[Plan] = []
    launch: Callable[[Plan], Any] = engine.runner.launch

    def spy(plan: Plan) -> Any:
        plans.append(plan)
        return launch(plan)

    engine.runner.launch = spy  # type: ignore[method-assign]
    return plans

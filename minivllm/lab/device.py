"""A device that takes time: any runner, and a clock that every step moves by what the step would cost on real hardware.

So a simulated engine has seconds, and a benchmark of a minute's traffic runs in a second.
"""

from dataclasses import dataclass, fields
from typing import Any

from minivllm.allowed import real
from minivllm.core.plan import Plan
from minivllm.runtime.ticket import Runner, StepResult


@dataclass(frozen=True)
class TimeModel:
    """Seconds of a step: `step` once, `row` per request, `prefill` per prompt token, `context` per token attended to.

    The defaults are an 8B model in 16 bit on one H200, from its data sheet: 16 GB of weights at 4.5 TB/s and half a
    millisecond of launches; 2 x 8e9 operations per prompt token at 600 TFLOP/s; 128 KB of K/V per token of context.
    Raises `ValueError` for a time below 0.
    """

    step: float = 4e-3
    row: float = 10e-6
    prefill: float = 27e-6
    context: float = 29e-9

    def __post_init__(self) -> None:
        for field in fields(self):
            real(f"TimeModel.{field.name}", getattr(self, field.name), 0, 1e9, "seconds, 0 or more")

    def seconds(self, plan: Plan) -> float:
        """The cost of one plan; an empty one is free."""
        if not plan.rows:
            return 0.0
        fed = sum(row.count for row in plan.rows if row.count > 1)
        seen = sum(row.start + row.count for row in plan.rows)
        return self.step + self.row * len(plan.rows) + self.prefill * fed + self.context * seen


class TimedRunner:
    """Passes every plan on to `runner` and moves `now()` by the plan's cost."""

    asynchronous = False

    def __init__(self, runner: Runner, model: TimeModel) -> None:
        self.runner, self.model = runner, model
        self.vocab_size = runner.vocab_size
        self.seconds = 0.0

    def now(self) -> float:
        """Simulated seconds since the start."""
        return self.seconds

    def launch(self, plan: Plan) -> Any:
        """Carry out a plan; its tokens are there when its time has passed."""
        self.seconds += self.model.seconds(plan)
        return self.runner.launch(plan)

    def wait(self, ticket: Any) -> StepResult:
        """The step's tokens."""
        return self.runner.wait(ticket)

    def resize(self, num_blocks: int, block_size: int) -> None:
        """A new pool."""
        self.runner.resize(num_blocks, block_size)

    def close(self) -> None:
        """Free the runner."""
        self.runner.close()


class BlankRunner:
    """No model, no K/V, every token 1: for experiments in which only lengths matter, and speed."""

    asynchronous = False
    vocab_size = 32_000

    def launch(self, plan: Plan) -> StepResult:
        """Every row gets the same token."""
        return StepResult([1] * len(plan.rows))

    def wait(self, ticket: StepResult) -> StepResult:
        """The result itself."""
        return ticket

    def resize(self, num_blocks: int, block_size: int) -> None:
        """There is no pool to resize."""

    def close(self) -> None:
        """There is nothing to free."""

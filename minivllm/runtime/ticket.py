"""What the engine asks of a runner: launch a plan, wait for its tokens."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from minivllm.core.plan import Plan


@dataclass(frozen=True)
class TokenLogprob:
    """One position's log-probabilities: of the token that stands there, its rank (1 = likeliest), the top ones."""

    token: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class StepResult:
    """Results of one step. `tokens[i]` belongs to `plan.rows[i]`, and means nothing where the row samples nothing.
    `logprobs` of sampled tokens and `prompt_logprobs` (position -> value) only for requests that asked."""

    tokens: list[int]
    logprobs: dict[str, TokenLogprob] = field(default_factory=dict)
    prompt_logprobs: dict[str, dict[int, TokenLogprob]] = field(default_factory=dict)


class Runner(Protocol):
    """Executes plans in the order of their launch. `asynchronous`: launch returns before the work is done."""

    asynchronous: bool
    vocab_size: int

    def launch(self, plan: Plan) -> Any:
        """Start a step and return its ticket."""

    def wait(self, ticket: Any) -> StepResult:
        """The results of a launched step."""

    def resize(self, num_blocks: int, block_size: int) -> None:
        """A new, empty pool; what is known of requests is dropped."""

    def close(self) -> None:
        """Let go of all memory."""

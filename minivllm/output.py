"""What the user gets back. Names and shape follow vLLM."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Logprob:
    """A token's log-probability, before penalties and temperature. `rank` 1 is the likeliest."""

    logprob: float
    rank: int
    decoded_token: str | None = None


Logprobs = dict[int, Logprob]
"""By token id, for one position: the token that stands there first, then the likeliest ones."""


@dataclass(frozen=True)
class CompletionOutput:
    """One generated sequence. `finish_reason`: stop, length or abort; `stop_reason`: the id of `stop_token_ids` or the stop
    string that ended it, None for the model's own end token, or the limit other than max_tokens ("max_model_len",
    "kv_capacity")."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str | None
    stop_reason: int | str | None = None
    cumulative_logprob: float | None = None
    logprobs: list[Logprobs] | None = None


@dataclass(frozen=True)
class RequestOutput:
    """One request's result. `num_cached_tokens` of the prompt were found in the prefix cache. The first token of a prompt
    has no log-probability: None stands there."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int
    prompt_logprobs: list[Logprobs | None] | None = None
    num_preemptions: int = 0


@dataclass(frozen=True)
class StepReport:
    """One tick: the rows that ran, the tokens that came out, the text that became visible, who ended, who had to go.

    `outputs` are those of the requests in `finished`.
    """

    tick: int
    num_tokens: int
    tokens: dict[str, int] = field(default_factory=dict)
    text: dict[str, str] = field(default_factory=dict)
    finished: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    outputs: tuple[RequestOutput, ...] = ()

    def __repr__(self) -> str:
        parts = [f"tick {self.tick}: {self.num_tokens} tokens computed"]
        if self.tokens:
            parts.append(f"sampled for {', '.join(self.tokens)}")
        if self.preempted:
            parts.append(f"preempted {', '.join(self.preempted)}")
        if self.finished:
            parts.append(f"finished {', '.join(self.finished)}")
        return "; ".join(parts)

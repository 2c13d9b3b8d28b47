"""One request: what was asked (SamplingParams) and how far it has come (three counters and an epoch)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from minivllm.allowed import FLOAT_MAX, biases, flag, real, texts, token_ids, whole

INT32_MAX = (1 << 31) - 1
MAX_SAMPLES = 16_384
"""Most samples of one request (`n`), as in vLLM."""


class Status(Enum):
    """Where a request stands. A preempted request is waiting again, with its tokens kept."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are drawn and when to stop. Names and meaning are vLLM's.

    `temperature` 0 is greedy (first of tied maxima). `top_k` 0 or -1 and `top_p` 1 are off. `max_tokens` None means
    up to the model length. `seed` None takes the engine's seed. `stop` strings end the text before them. Lists and dicts
    are copied: what you do to yours later changes nothing.
    Raises `ValueError` naming the field, what was given and what is allowed.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: str | list[str] | tuple[str, ...] | None = ()
    stop_token_ids: list[int] | tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    n: int = 1

    def __post_init__(self) -> None:
        def settle(name: str, check: Callable[..., Any], *allowed: Any, **how: Any) -> None:
            object.__setattr__(self, name, check(f"SamplingParams.{name}", getattr(self, name), *allowed, **how))

        settle("temperature", real, 0, FLOAT_MAX, "a number of 0 or more")
        settle("top_k", whole, -1, INT32_MAX, note=" (0 and -1 are off)")
        settle("top_p", real, 0, 1, "a number above 0, at most 1", above=True)
        settle("min_p", real, 0, 1, "a number from 0 to 1")
        settle("repetition_penalty", real, 0, FLOAT_MAX, "a number above 0", above=True)
        settle("presence_penalty", real, -2, 2, "a number from -2 to 2")
        settle("frequency_penalty", real, -2, 2, "a number from -2 to 2")
        settle("min_tokens", whole, 0)
        settle("n", whole, 1, MAX_SAMPLES)
        settle("ignore_eos", flag)
        for name, low, high in (
            ("seed", -(1 << 63), (1 << 63) - 1), ("max_tokens", 1, None), ("logprobs", 0, 100), ("prompt_logprobs", 0, 100)
        ):  # fmt: skip
            if getattr(self, name) is not None:
                settle(name, whole, low, high, note=", or None")
        settle("stop", texts)
        settle("stop_token_ids", token_ids)
        settle("logit_bias", biases)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(
                f"SamplingParams.min_tokens is {self.min_tokens}; allowed: at most max_tokens={self.max_tokens}"
            )

    @property
    def heat(self) -> float:
        """The temperature the sampler divides by. Below 1e-5 the best token wins anyway and logits could overflow: 0."""
        return self.temperature if self.temperature >= 1e-5 else 0.0

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """`stop` as a tuple, whatever form it was given in."""
        return self.stop  # type: ignore[return-value]  # settled when it was made

    @property
    def shapes_logits(self) -> bool:
        """Whether logits are changed or reported beyond temperature, top-k, top-p and min-p."""
        return bool(
            self.repetition_penalty != 1.0
            or self.presence_penalty
            or self.frequency_penalty
            or self.logit_bias
            or self.min_tokens
            or self.logprobs is not None
            or self.prompt_logprobs is not None
        )


class Request:
    """Token counters of one request; pure data, moved only by the scheduler and the KV manager.

    The three counters express prefill, chunked prefill, prefix hits, decode and resume as one rule:

        num_computed <= num_scheduled <= len(tokens) + num_pending

    * `num_computed`: positions whose K/V is known to be in the cache (a prefix hit starts it above 0);
    * `num_scheduled`: positions handed to the runner; the next row starts here;
    * `num_pending`: tokens being sampled on the device that the host has not seen yet.

    A row computes `count = min(len(tokens) + num_pending - num_scheduled, budget)` positions, and samples a token iff
    it reaches the end. `epoch` is new at every admission: results that carry an older one are dropped.
    """

    __slots__ = (
        "arrival", "arrived_tick", "cow", "epoch", "extra_keys", "finish_reason", "group", "hashes", "id", "limit",
        "limit_detail", "match_prefix", "num_cached", "num_computed", "num_pending", "num_preemptions",
        "num_published", "num_scheduled", "params", "priority", "prompt_len", "seed", "status", "stop_ids",
        "stop_reason", "table", "tokens",
    )  # fmt: skip

    def __init__(
        self,
        id: str,
        tokens: list[int],
        params: SamplingParams,
        *,
        limit: int,
        limit_detail: str | None = None,
        stop_ids: frozenset[int] = frozenset(),
        extra_keys: tuple[tuple[str, str], ...] = (),
        priority: int = 0,
        arrival: int = 0,
        seed: int = 0,
    ) -> None:
        self.id = id
        self.tokens = tokens  # prompt, then every sampled token the host has seen
        self.prompt_len = len(tokens)
        self.params = params
        self.limit = limit  # tokens, prompt included, at which it ends with reason "length"
        self.limit_detail = limit_detail  # which limit that is, if not max_tokens
        self.stop_ids = stop_ids
        self.extra_keys = extra_keys  # tagged: ("salt", …), ("adapter", …); part of every block hash
        self.priority = priority  # smaller goes first
        self.arrival = arrival
        self.seed = seed
        self.group: str | None = None  # the request it was forked from
        self.match_prefix = params.prompt_logprobs is None  # cached positions have no logits to report
        self.status = Status.WAITING
        self.arrived_tick = 0
        self.epoch = -1
        self.num_computed = 0
        self.num_scheduled = 0
        self.num_pending = 0
        self.num_cached: int | None = None  # prompt tokens found in the cache at first admission
        self.num_preemptions = 0
        self.table: list[int] = []  # logical block -> physical block
        self.hashes: list[bytes] = []  # chained hash of each full block, computed once
        self.num_published = 0  # leading blocks already in the prefix index
        self.cow = False  # shares a block that it may write: look before every write
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None

    @property
    def output_tokens(self) -> list[int]:
        """Sampled token ids so far."""
        return self.tokens[self.prompt_len :]

    def verdict(self) -> tuple[str, int | str | None] | None:
        """Why the request is over with its newest token, `(finish_reason, stop_reason)`; None while it is not."""
        if self.finish_reason is not None:
            return self.finish_reason, self.stop_reason
        if self.tokens[-1] in self.stop_ids and len(self.tokens) - self.prompt_len >= max(1, self.params.min_tokens):
            asked_for = self.tokens[-1] in self.params.stop_token_ids  # else it is the model's own end token
            return "stop", self.tokens[-1] if asked_for else None
        return ("length", self.limit_detail) if len(self.tokens) >= self.limit else None

    def rewind(self) -> None:
        """Forget all computed positions (preemption by recompute); tokens stay, late results will be dropped."""
        self.num_computed = self.num_scheduled = self.num_pending = self.num_published = 0
        self.epoch = -1  # the next admission gives a new one
        self.status = Status.WAITING

    def __repr__(self) -> str:
        return f"Request({self.id}, {self.status.value}, {len(self.tokens)} tokens, computed {self.num_computed})"

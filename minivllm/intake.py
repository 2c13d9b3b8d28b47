"""At the door: every check a request must pass before anything is queued, and the request made of it.

Each refusal is a `ValueError` that says what was given and what is allowed; nothing was changed when it is raised.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from hashlib import blake2b
from operator import index
from struct import error as StructError
from struct import pack
from typing import Any

import numpy as np

from minivllm.allowed import shown
from minivllm.core.scheduler import Cache
from minivllm.request import Request, SamplingParams

PRIORITIES = (-(1 << 63), (1 << 63) - 1)


def letters(number: int) -> str:
    """A, B, … Z, AA, AB, … for 0, 1, …: ids short enough to read in a block."""
    name, number = "", number + 1
    while number:
        number, place = divmod(number - 1, 26)
        name = chr(65 + place) + name
    return name


def check_tokens(tokens: Sequence[int], vocab_size: int, max_model_len: int) -> list[int]:
    """The prompt as plain ints. Refuses an empty one, unknown ids, and one that leaves no room to answer."""
    try:
        if isinstance(tokens, str | bytes | bytearray | memoryview | Mapping | Set):
            raise TypeError(f"it is a {type(tokens).__name__}")
        listed = list(tokens.tolist() if hasattr(tokens, "tolist") else tokens)  # an array of NumPy or torch has it
        kinds = set(map(type, listed))
        if bool in kinds:
            raise TypeError("it holds True or False")
        ids = listed if kinds == {int} else list(map(index, listed))
    except TypeError as error:
        raise ValueError(f"a prompt is text or a list of whole numbers; this is {shown(tokens)}: {error}") from None
    if not ids:
        raise ValueError("the prompt is empty; at least one token is needed")
    if not _all_below(ids, vocab_size):
        wrong = next(token for token in ids if not 0 <= token < vocab_size)
        raise ValueError(f"token id {wrong} is out of range; allowed: 0 to {vocab_size - 1}")
    if len(ids) >= max_model_len:
        raise ValueError(
            f"the prompt has {len(ids)} tokens; max_model_len is {max_model_len}, so at most {max_model_len - 1} leave "
            "room for an answer"
        )
    return ids


def _all_below(ids: list[int], bound: int) -> bool:
    """Whether 0 <= id < bound for all; in one array, which is much faster than looking at thousands of ints."""
    try:
        packed = np.frombuffer(pack(f"{len(ids)}Q", *ids), dtype=np.uint64)
    except StructError:  # one is negative, or has more than 64 bits
        return False
    return bool(packed.max() < bound)


def encode(tokenizer: Any, text: str) -> list[int]:
    """Text to token ids. Raises `ValueError` without a tokenizer, and for text that is no Unicode."""
    if tokenizer is None:
        raise ValueError("a text prompt needs a model with a tokenizer; this engine has none: give token ids")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the prompt is not valid Unicode: {error}") from None
    return list(tokenizer.encode(text))


def make_request(
    request_id: str,
    tokens: list[int],
    params: SamplingParams,
    cache: Cache,
    *,
    max_model_len: int,
    max_prompt: int | None,
    eos: frozenset[int],
    seed: int,
    arrival: int,
    priority: int = 0,
    extra_keys: tuple[tuple[str, str], ...] = (),
) -> Request:
    """A request with its limits settled. `max_prompt` is the token budget when prompts may not be chunked."""
    stop_ids = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else eos)
    if params.seed is None:  # requests without a seed differ from each other, and are the same in every run
        digest = blake2b(f"{seed}:{arrival}".encode(), digest_size=7).digest()
        seed = int.from_bytes(digest, "little")
    else:
        seed = params.seed
    request = Request(
        request_id, tokens, params, limit=max_model_len, stop_ids=stop_ids, extra_keys=extra_keys, priority=priority,
        arrival=arrival, seed=seed,
    )  # fmt: skip
    if max_prompt is not None and len(tokens) > max_prompt:
        raise ValueError(
            f"the prompt has {len(tokens)} tokens; with enable_chunked_prefill=False at most "
            f"max_num_batched_tokens={max_prompt} are allowed"
        )
    set_limit(request, cache, max_model_len)
    return request


def set_limit(request: Request, cache: Cache, max_model_len: int) -> None:
    """The length at which a request must end: its max_tokens, the model's length, or what the whole pool can hold.

    The newest token is never fed back, so `capacity` tokens of K/V carry a sequence of `capacity + 1`. Refuses a
    request that could not run even alone.
    """
    capacity = cache.capacity(request)
    size = cache.block_size
    if capacity < len(request.tokens):
        need, have = -(-len(request.tokens) // size), capacity // size
        where, cure = f"the whole pool offers it {have}", "a shorter prompt"
        if not have:
            where, cure = "no extent of the empty pool can hold its reservation", "a reservation that asks for less"
        raise ValueError(
            f"request {request.id!r} needs {need} blocks of {size} tokens for its {len(request.tokens)} tokens; "
            f"{where}: use a larger num_blocks or {cure}"
        )
    wanted = request.prompt_len + (request.params.max_tokens or max_model_len)
    request.limit, request.limit_detail = min(
        (wanted, None), (max_model_len, "max_model_len"), (capacity + 1, "kv_capacity"), key=lambda pair: pair[0]
    )


def check_params(params: SamplingParams, vocab_size: int, has_tokenizer: bool, eos: Collection[int] = ()) -> None:
    """Refuses what this engine cannot honour: token ids outside the vocabulary, stop strings without a tokenizer."""
    if not isinstance(params, SamplingParams):
        raise ValueError(f"params is {shown(params)}; give a SamplingParams")
    if params.stop_strings and not has_tokenizer:
        raise ValueError("stop strings need a model with a tokenizer; use stop_token_ids")
    wrong = [t for t in (*params.logit_bias, *params.stop_token_ids) if not 0 <= t < vocab_size]
    if wrong:
        raise ValueError(f"token id {wrong[0]} is out of range; allowed: 0 to {vocab_size - 1}")
    ends = {*params.stop_token_ids, *(() if params.ignore_eos else eos)}
    if params.min_tokens and len(ends) >= vocab_size:
        raise ValueError(f"min_tokens is {params.min_tokens}, but every token stops: stop_token_ids must leave one")

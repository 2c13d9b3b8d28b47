"""From a configuration to the parts of an engine: which KV manager, which scheduler, how many blocks."""

from collections.abc import Callable
from typing import Any

from minivllm.allowed import has_methods, shown, whole
from minivllm.config import EngineConfig
from minivllm.core.contiguous import ALLOCATORS, ContiguousManager
from minivllm.core.eviction import BY_NAME as EVICTIONS
from minivllm.core.eviction import Eviction
from minivllm.core.hashing import Hasher
from minivllm.core.kv_manager import KVManager
from minivllm.core.policy import BY_NAME as POLICIES
from minivllm.core.policy import Policy
from minivllm.core.scheduler import Scheduler
from minivllm.events import Bus

EvictionFactory = Callable[[], Eviction]
EVICTION_METHODS = ("insert", "remove", "pop", "__len__", "__iter__")
OPS_METHODS = ("linear", "linear_silu_mul", "rms_norm", "add_rms_norm", "attention", "sample")
SIMULATED_BLOCKS = 256
"""Pool size of a simulated engine that was not told one."""


LIVE = {
    "async_scheduling", "enable_chunked_prefill", "max_num_batched_tokens", "max_num_seqs", "mix_prefill_decode", "policy",
    "watermark",
}  # fmt: skip
"""Settings that change on a running engine as they are."""
REBUILD = {
    "allocator", "block_size", "enable_prefix_caching", "eviction", "kv_layout", "num_blocks", "prefix_cache_blocks",
    "reservation", "verify_prefix_hits",
}  # fmt: skip
"""Settings whose change begins with an empty pool."""


def check_parts(
    policy: Any = None, eviction: Any = None, hasher: Any = None, runner: Any = None, kernels: Any = None
) -> None:
    """Refuses, with a `ValueError`, parts of the user's own that lack what will be called. None is always fine."""
    if policy is not None:
        names = ", ".join(POLICIES)
        what = f"an object with pick(waiting, cache, tick) and victim(running); by name, in EngineConfig: {names}"
        has_methods("policy", policy, ("pick", "victim"), what)
    if eviction is not None:
        wants = f"a class with {', '.join(EVICTION_METHODS)}, since every new pool starts with a new order"
        if not callable(eviction):
            raise ValueError(f"eviction is {shown(eviction)}; allowed: {wants}; by name, in EngineConfig: lru, fifo")
        has_methods("what eviction makes", eviction(), EVICTION_METHODS, wants)
    if hasher is not None and not callable(hasher):
        raise ValueError(f"hasher is {shown(hasher)}; allowed: a function of (parent, tokens, extra) to bytes")
    if runner is not None:
        has_methods("runner", runner, ("launch", "wait", "resize", "close"), "an object like `SimRunner`")
    if kernels is not None and not isinstance(kernels, str):
        has_methods("kernels", kernels, OPS_METHODS, "a name, or an object like `ReferenceOps`")


def revise(config: EngineConfig, changes: dict[str, Any], runner: Any) -> EngineConfig:
    """`config` with `changes`, as a running engine may take them: the pool keeps its size in tokens.

    Raises `ValueError` for settings that cannot change, and for more than `runner` was built for.
    """
    if refused := sorted(set(changes) - REBUILD - LIVE):
        raise ValueError(
            f"{', '.join(refused)} cannot change on a running engine; these can: {', '.join(sorted(REBUILD | LIVE))}"
        )
    if "num_blocks" in changes:
        changes = {**changes, "num_blocks": whole("num_blocks", changes["num_blocks"], 1)}
    new = config.replace(**changes)
    seats = getattr(runner, "max_num_seqs", new.max_num_seqs)
    if new.max_num_seqs > seats:
        raise ValueError(
            f"max_num_seqs is {new.max_num_seqs}; this engine was built with {seats} seats, at most so many"
        )
    largest = getattr(runner, "max_num_batched_tokens", None) or new.max_num_batched_tokens
    if new.max_num_batched_tokens > largest:
        raise ValueError(
            f"max_num_batched_tokens is {new.max_num_batched_tokens}; this engine set memory aside for steps of "
            f"{largest} tokens, at most so many"
        )
    if "block_size" in changes and "num_blocks" not in changes:
        tokens: int = config.num_blocks * config.block_size  # type: ignore[operator]
        new = new.replace(num_blocks=max(1, tokens // new.block_size))
    return new


def build_cache(
    config: EngineConfig,
    num_blocks: int,
    max_model_len: int,
    bus: Bus,
    eviction: EvictionFactory | None,
    hasher: Hasher,
) -> KVManager | ContiguousManager:
    """The KV manager of a fresh pool of `num_blocks` blocks."""
    if config.kv_layout == "contiguous":
        allocator = ALLOCATORS[config.allocator](num_blocks)
        return ContiguousManager(
            num_blocks, config.block_size, bus=bus, reservation=config.reservation, allocator=allocator,
            max_model_len=max_model_len,
        )  # fmt: skip
    return KVManager(
        num_blocks,
        config.block_size,
        bus=bus,
        eviction=(EVICTIONS[config.eviction] if eviction is None else eviction)(),
        hasher=hasher,
        prefix_caching=config.prefix_caching,
        cache_limit=config.prefix_cache_blocks,
        verify=config.verify_prefix_hits,
    )


def build_scheduler(
    config: EngineConfig, cache: KVManager | ContiguousManager, num_blocks: int, bus: Bus, policy: Policy | None
) -> Scheduler:
    """A scheduler over `cache` with the limits of `config`."""
    scheduler = Scheduler(cache, bus=bus)
    configure(scheduler, config, num_blocks, policy)
    return scheduler


def configure(scheduler: Scheduler, config: EngineConfig, num_blocks: int, policy: Policy | None) -> None:
    """Give a scheduler, new or running, the limits and the policy of `config`."""
    scheduler.max_num_seqs = config.max_num_seqs
    scheduler.max_num_batched_tokens = config.max_num_batched_tokens
    scheduler.chunked, scheduler.mixed = config.enable_chunked_prefill, config.mix_prefill_decode
    scheduler.spare_blocks = int(config.watermark * num_blocks)
    scheduler.policy = POLICIES[config.policy]() if policy is None else policy
    while len(scheduler.running) > config.max_num_seqs:
        victim = scheduler.victim()
        scheduler.preempt(victim, victim.id)

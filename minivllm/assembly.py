"""From a configuration to the parts of an engine: which KV manager, which scheduler, how many blocks."""

from collections.abc import Callable

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
        eviction=(eviction or EVICTIONS[config.eviction])(),
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
    scheduler.policy = policy or POLICIES[config.policy]()
    while len(scheduler.running) > config.max_num_seqs:
        victim = scheduler.policy.victim(scheduler.running)
        scheduler.preempt(victim, victim.id)

"""Taking the snapshot of a live engine, and the events that would lead an empty engine to it."""

from collections.abc import Iterable, Iterator

from minivllm import events as ev
from minivllm.config import EngineConfig
from minivllm.core.contiguous import ContiguousManager
from minivllm.core.kv_manager import KVManager
from minivllm.core.policy import BY_NAME, Policy
from minivllm.core.scheduler import Scheduler
from minivllm.request import Request
from minivllm.snapshot import BlockView, RequestView, Snapshot

QUEUE_SHOWN = 1024
"""Largest pool whose free queue is listed in snapshots and events."""


def picture(scheduler: Scheduler, config: EngineConfig, finished: Iterable[Request]) -> Snapshot:
    """The engine between two ticks, from its tables, counts and queues."""
    cache, size = scheduler.cache, scheduler.cache.block_size
    num_blocks: int = config.num_blocks  # type: ignore[assignment]
    live = [*scheduler.running, *scheduler.waiting]
    owners: list[list[str]] = [[] for _ in range(num_blocks)]
    filled = [0] * num_blocks
    for request in live:
        for index, block in enumerate(request.table):
            owners[block].append(request.id)
            filled[block] = max(filled[block], min(size, max(0, request.num_computed - index * size)))
    if isinstance(cache, KVManager):
        ref, hashes = cache.pool.ref, {block: digest.hex() for block, digest in cache.index.hash_of.items()}
    else:
        ref, hashes = [len(names) for names in owners], {}
    blocks = tuple(
        BlockView(b, ref[b], hashes.get(b), tuple(owners[b]), filled[b] if ref[b] else size if b in hashes else 0)
        for b in range(num_blocks)
    )
    views = tuple(_view(cache, request) for request in [*live, *finished])
    return Snapshot(
        scheduler.tick, size, num_blocks, config.kv_layout, blocks, free_queue(scheduler), views,
        tuple(r.id for r in scheduler.running), tuple(r.id for r in scheduler.waiting),
    )  # fmt: skip


def free_queue(scheduler: Scheduler) -> tuple[int, ...]:
    """The free queue, next block first; for extents the blocks in holes; () for pools too large to list."""
    cache = scheduler.cache
    if isinstance(cache, KVManager):
        return tuple(cache.pool) if cache.pool.num_blocks <= QUEUE_SHOWN else ()
    if isinstance(cache, ContiguousManager) and cache.num_blocks <= QUEUE_SHOWN:
        return tuple(b for base, blocks in cache.allocator.holes() for b in range(base, base + blocks))
    return ()


def engine_event(config: EngineConfig, policy: Policy, rebuilt: bool, changed: tuple[str, ...]) -> ev.Event:
    """The settings as an event; a policy that has no name of ours is called by its class."""
    name = next((name for name, known in BY_NAME.items() if type(policy) is known), type(policy).__name__)
    return ev.Engine(
        config.block_size, config.num_blocks or 0, config.kv_layout, name, config.prefix_caching,
        config.max_num_batched_tokens, rebuilt, changed,
    )  # fmt: skip


def opening(config: EngineConfig, policy: Policy, snapshot: Snapshot) -> Iterator[ev.Event]:
    """Events that lead an empty engine to `snapshot`, for a recorder that comes late; nothing before the first tick."""
    yield engine_event(config, policy, True, ())
    if snapshot.tick:
        yield ev.Start(snapshot.tick)
    seen: set[int] = set()
    for request in snapshot.requests:
        yield ev.Arrive(
            request.id, request.prompt_tokens, request.max_tokens, request.tokens - request.prompt_tokens,
            request.cached, request.preemptions,
        )  # fmt: skip
        if request.reserved:
            yield ev.Reserve(request.id, request.table[0], request.reserved, len(request.table))
        else:
            for index, block in enumerate(request.table):
                again = block in seen
                yield (
                    ev.Hit(request.id, block, index, snapshot.blocks[block].ref)
                    if again
                    else ev.Take(request.id, block, index)
                )
                seen.add(block)
        if request.computed or request.id in snapshot.running:
            yield ev.Admit(request.id, request.cached, True)
            yield ev.Run(request.id, 0, request.computed, False, False)
        if request.finish_reason:
            yield ev.Finish(request.id, request.finish_reason, request.tokens - request.prompt_tokens)
    for view in snapshot.blocks:
        if view.hash:
            yield ev.Publish("", view.id, 0, view.hash, None)
    if snapshot.tick:
        yield ev.End(snapshot.tick, snapshot.free)


def _view(cache: object, request: Request) -> RequestView:
    extent = cache.extents.get(request.id) if isinstance(cache, ContiguousManager) else None
    return RequestView(
        request.id, request.status.value, request.prompt_len, len(request.tokens), request.num_computed,
        request.num_cached or 0, request.limit - request.prompt_len, tuple(request.table), extent[1] if extent else 0,
        request.num_preemptions, request.finish_reason,
    )  # fmt: skip

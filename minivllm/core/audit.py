"""Recompute everything from the block tables and compare: the bookkeeping's conscience, and the leak finder.

Six invariants of the paged cache; `audit()` returns what is wrong in words, so a healthy engine returns nothing.
"""

from collections import Counter
from collections.abc import Iterable

from minivllm.core.block_pool import BlockPool
from minivllm.core.cache import Cache
from minivllm.core.contiguous import ContiguousManager
from minivllm.core.kv_manager import KVManager
from minivllm.core.prefix_index import PrefixIndex
from minivllm.core.scheduler import Scheduler
from minivllm.request import Request, Status


def audit(scheduler: Scheduler) -> list[str]:
    """Every disagreement between tables, reference counts, free queue, index and request counters; [] when healthy."""
    cache = scheduler.cache
    wrong = list(_requests(scheduler))
    tables = {r.id: r.table for r in scheduler.requests.values()}
    if isinstance(cache, KVManager):
        wrong += [*_pool(cache.pool, tables), *_index(cache.index, cache.pool)]
    elif isinstance(cache, ContiguousManager):
        wrong += _extents(cache, tables)
    return wrong


def leaks(cache: Cache, live: Iterable[Request]) -> dict[int, int]:
    """Blocks that hold more references than the live tables explain: block -> references nobody owns."""
    if not isinstance(cache, KVManager):
        return {}
    owned = Counter(block for request in live for block in request.table)
    return {block: ref - owned[block] for block, ref in enumerate(cache.pool.ref) if ref > owned[block]}


def _pool(pool: BlockPool, tables: dict[str, list[int]]) -> Iterable[str]:
    owners = Counter(block for table in tables.values() for block in table)
    for block, ref in enumerate(pool.ref):
        if ref != owners[block]:
            who = ", ".join(name for name, table in tables.items() if block in table) or "no table"
            yield f"block {block}: ref {ref}, but {owners[block]} in tables ({who})"
    queue = list(pool)
    if len(set(queue)) != len(queue):
        yield f"a block is in the free queue twice: {sorted(b for b, n in Counter(queue).items() if n > 1)}"
    if held := sorted(b for b in queue if pool.ref[b]):
        yield f"referenced blocks are in the free queue: {held}"
    if lost := sorted({b for b, ref in enumerate(pool.ref) if ref == 0} - set(queue)):
        yield f"blocks with ref 0 are not in the free queue: {lost}"
    for name, table in tables.items():
        if len(set(table)) != len(table):
            yield f"{name} has a block twice in its table: {table}"


def _index(index: PrefixIndex, pool: BlockPool) -> Iterable[str]:
    forward = {(block, digest) for digest, blocks in index.blocks.items() for block in blocks}
    if forward != {(block, digest) for block, digest in index.hash_of.items()}:
        yield "hash -> blocks and block -> hash disagree"
    if worthless := sorted(set(pool.free) & set(index.hash_of)):
        yield f"blocks without content can be found by hash: {worthless}"
    if nameless := sorted(set(pool.cached) - set(index.hash_of)):
        yield f"cached blocks cannot be found by hash: {nameless}"


def _requests(scheduler: Scheduler) -> Iterable[str]:
    size = scheduler.cache.block_size
    for r in scheduler.requests.values():
        known = len(r.tokens) + r.num_pending
        if not 0 <= r.num_computed <= r.num_scheduled <= known or known > r.limit:
            yield f"{r.id}: computed {r.num_computed}, scheduled {r.num_scheduled}, tokens {known}, limit {r.limit}"
        if r.status is Status.RUNNING and len(r.table) * size < r.num_scheduled:
            yield f"{r.id}: {r.num_scheduled} positions scheduled, {len(r.table)} blocks of {size}"
        if verdict := r.verdict():
            yield f"{r.id} is over ({verdict[0]}) and still there"
        if r.num_published * size > r.num_computed:
            yield f"{r.id}: published {r.num_published} blocks, computed {r.num_computed} tokens"
        if (r in scheduler.waiting) == (r in scheduler.running):
            yield f"{r.id} is in both queues or in none"
        if r.status is Status.WAITING and r.table:
            yield f"{r.id} waits and holds blocks {r.table}"
    if len(scheduler.running) > scheduler.max_num_seqs:
        yield f"{len(scheduler.running)} requests run, {scheduler.max_num_seqs} may"


def _extents(cache: ContiguousManager, tables: dict[str, list[int]]) -> Iterable[str]:
    spans = sorted((base, blocks) for base, blocks, _ in cache.extents.values())
    spans = sorted([*spans, *cache.allocator.holes()])
    at = 0
    for base, blocks in spans:
        if base != at:
            yield f"extents and holes do not tile the pool: {base} follows {at}"
        at = base + blocks
    if at != cache.num_blocks:
        yield f"extents and holes cover {at} of {cache.num_blocks} blocks"
    if set(cache.extents) != {name for name, table in tables.items() if table}:
        yield f"extents of {sorted(cache.extents)}, tables of {sorted(n for n, t in tables.items() if t)}"

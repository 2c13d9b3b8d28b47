"""Paging: each request's block table, from logical block to physical block, grown on demand and shared by prefix.

    slot(p) = table[p // block_size] * block_size + p % block_size

Admission is one transaction: match the prefix, count what is missing, and change nothing unless all of it can be had.
(Kwon et al. 2023, §4.2–4.3; vLLM's automatic prefix caching.)
"""

from minivllm.core.block_pool import BlockPool
from minivllm.core.cache import Growth, Shortage
from minivllm.core.eviction import Eviction
from minivllm.core.hashing import Hasher, block_hash, extend
from minivllm.core.prefix_index import Content, PrefixIndex
from minivllm.events import Bus, Copy, Evict, Hit, Publish, Release, Take
from minivllm.request import Request


class KVManager:
    """Block tables over one pool. A table lives in `request.table`; nothing else writes it."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        bus: Bus | None = None,
        eviction: Eviction | None = None,
        hasher: Hasher = block_hash,
        prefix_caching: bool = True,
        cache_limit: int | None = None,
        verify: bool | None = None,
    ) -> None:
        self.block_size = block_size
        self.pool = BlockPool(num_blocks, eviction)
        self.index = PrefixIndex(verify=hasher is not block_hash if verify is None else verify)
        self.hasher = hasher
        self.prefix_caching = prefix_caching
        self.cache_limit = cache_limit
        self.bus = Bus() if bus is None else bus

    def capacity(self, request: Request) -> int:
        """The most tokens of K/V this request could ever hold, alone in the pool."""
        return self.pool.num_blocks * self.block_size

    def match(self, request: Request) -> list[int]:
        """Cached blocks a request would start with, `len - 1` tokens at most: the last token is always computed."""
        if not self.prefix_caching or not request.match_prefix:
            return []
        full = (len(request.tokens) - 1) // self.block_size
        hashes = self._hashes(request, full)[:full]
        return self.index.match(hashes, request.tokens, self.block_size, request.extra_keys)

    def open(self, request: Request, spare: int = 0) -> Shortage | None:
        """Give a request blocks for all its tokens, cached ones first, leaving `spare` blocks; or change nothing.

        Hits are referenced before any block is taken, so a request can never evict its own hits.
        """
        hits = self.match(request)
        missing = -(-len(request.tokens) // self.block_size) - len(hits)
        revived = [self.pool.ref[block] for block in hits].count(0)
        if missing + revived + spare > self.pool.available:
            return Shortage(missing + revived + spare, self.pool.available)
        for block in hits:
            self.pool.share(block)
        request.table = list(hits)
        if self.bus.active:
            for index, block in enumerate(hits):
                self.bus.emit(Hit(request.id, block, index, self.pool.ref[block]))
        for _ in range(missing):
            request.table.append(self._take(request, len(request.table)))
        request.num_published = len(hits)
        request.num_computed = request.num_scheduled = len(hits) * self.block_size
        return None

    def grow(self, request: Request, end: int) -> Growth | None:
        """Make positions `num_scheduled … end-1` writable: new blocks, a copy of a shared one. None: no room."""
        table, blocks, copies = request.table, [], []
        first = request.num_scheduled // self.block_size
        shared = (
            request.cow
            and first < len(table)
            # alone again, but whoever shared it has filled it and published it: others may hit it
            and (self.pool.ref[table[first]] > 1 or table[first] in self.index.hash_of)
        )
        if -(-end // self.block_size) - len(table) + shared > self.pool.available:
            return None
        if shared:  # copy-on-write: leave the shared block to the others
            source = table[first]
            table[first] = block = self._take(request, first, source)
            self.pool.release(source, keep=source in self.index.hash_of)
            self._keep_to_limit()
            blocks.append((first, block))
            copies.append((source, block))
        request.cow = False
        while len(table) * self.block_size < end:
            table.append(self._take(request, len(table)))
            blocks.append((len(table) - 1, table[-1]))
        return Growth(blocks, copies)

    def publish(self, request: Request) -> None:
        """Make every full block whose K/V has been computed findable, generated tokens included."""
        full = request.num_computed // self.block_size
        if not self.prefix_caching:
            return
        hashes = self._hashes(request, full)
        for index in range(request.num_published, full):
            block, content = request.table[index], None
            if self.index.verify:
                tokens = request.tokens[index * self.block_size : (index + 1) * self.block_size]
                past = self.index.content(request.table[index - 1]) if index else None
                content = Content(past, tuple(tokens), request.extra_keys)
            self.index.publish(block, hashes[index], content)
            if self.bus.active:
                parent = hashes[index - 1].hex() if index else None
                self.bus.emit(Publish(request.id, block, index, hashes[index].hex(), parent))
        request.num_published = max(request.num_published, full)

    def fork(self, parent: Request, child: Request) -> bool:
        """Let `child` share the blocks that hold its first `num_computed` positions; both copy before they write."""
        blocks = -(-child.num_computed // self.block_size)
        child.table = parent.table[:blocks]
        for block in child.table:
            self.pool.share(block)
        child.hashes = parent.hashes[: child.num_computed // self.block_size]
        child.num_published = min(parent.num_published, child.num_computed // self.block_size)
        parent.cow = child.cow = True
        return True

    def close(self, request: Request) -> None:
        """Release a request's blocks, tail first, so that tails are evicted before the heads others may share."""
        release, published, active = self.pool.release, self.index.hash_of, self.bus.active
        for block in reversed(request.table):
            keep = block in published
            release(block, keep)
            if active:
                self.bus.emit(Release(request.id, block, self.pool.ref[block], keep))
        request.table = []
        request.cow = False
        self._keep_to_limit()

    def _keep_to_limit(self) -> None:
        while self.cache_limit is not None and len(self.pool.cached) > self.cache_limit:
            self._forget(self.pool.evict(), None)

    def reset(self) -> tuple[int, ...] | None:
        """Empty the prefix cache, return the blocks that lost their hash; None (nothing done) if a block is in use."""
        if any(self.pool.ref):
            return None
        dropped = tuple(self.pool.cached)
        while len(self.pool.cached):
            self.index.forget(self.pool.evict())
        return dropped

    def _take(self, request: Request, index: int, source: int | None = None) -> int:
        block = self.pool.take()
        self._forget(block, request.id)
        if self.bus.active:
            take = Take(request.id, block, index)
            self.bus.emit(take if source is None else Copy(request.id, source, block, index))
        return block

    def _forget(self, block: int, taker: str | None) -> None:
        digest = self.index.forget(block)
        if digest is not None and self.bus.active:
            self.bus.emit(Evict(block, digest.hex(), taker))

    def _hashes(self, request: Request, count: int) -> list[bytes]:
        """The first `count` chained hashes of a request, computed once and kept."""
        extend(request.hashes, request.tokens, count, self.block_size, request.extra_keys, self.hasher)
        return request.hashes

"""What the cache still holds of each request: whose content a block keeps, and how far a prefix is whole from its start.

Followed from events alone, like every picture: a request's chain is the hashes of its full blocks in order, and a new
request with the same tokens can hit that chain up to the first hash that is gone.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minivllm import events as ev
from minivllm.recorder import MAX_FINISHED


class Left(NamedTuple):
    """What is left of one request: per logical block the block that holds it or None; the first `hit` can be hit."""

    request: str
    blocks: tuple[int | None, ...]
    hit: int
    prompt_only: bool


class Remains:
    """Applies events one by one. `known` gives the chains of requests that were there before the recording began."""

    def __init__(self, known: Mapping[str, Sequence[str]] | None = None) -> None:
        self.home: dict[int, tuple[str, int]] = {}  # block -> who published its content, as which logical block
        self.hash: dict[int, str] = {}
        self.holders: dict[str, dict[int, None]] = {}  # hash -> the blocks that hold it
        self.chain: dict[str, dict[int, str]] = {}  # request -> logical index -> hash
        self.prompt: dict[str, int] = {}
        self.finished: dict[str, int] = {}  # -> number of the eviction that broke the chain first, 0 before that
        self.num_blocks, self.block_size, self.paged = 0, 1, True
        self._known = dict(known or {})
        self._readers: dict[str, dict[str, int]] = {}  # hash -> the requests whose chain it is in, and where
        self._evictions = 0

    def apply(self, event: ev.Event) -> None:
        """Let one event happen. Kinds that move no content are passed over."""
        match event:
            case ev.Engine(rebuilt=True):
                self.num_blocks, self.block_size, self.paged = (
                    event.num_blocks,
                    event.block_size,
                    event.layout == "paged",
                )
                for store in (self.home, self.hash, self.holders, self._readers, self.finished):
                    store.clear()
                self.chain = {} if not event.changed else {who: {} for who in self.chain}
            case ev.Arrive(who, prompt) | ev.Fork(request=who, prompt_tokens=prompt):
                self._begin(who, prompt)
                # a fork's last block may hold tokens that only its parent has
                blocks = event.blocks[: event.computed // self.block_size] if isinstance(event, ev.Fork) else ()
                chain = [self.hash[block] for block in blocks if block in self.hash]
                for index, digest in enumerate(chain or self._known.pop(who, ())):
                    self._link(who, index, digest)
            case ev.Hit(who, block, index) if block in self.hash:
                self._link(who, index, self.hash[block])
            case ev.Publish(who, block, index, digest):
                self.hash[block] = digest
                self.holders.setdefault(digest, {})[block] = None
                if who:
                    self.home[block] = (who, index)
                    self._link(who, index, digest)
                elif digest in self._readers:  # it was there before the recording began
                    self.home[block] = next(iter(self._readers[digest].items()))
            case ev.Evict(block):
                self._forget(block)
            case ev.Reset(blocks):
                for block in blocks:
                    self._forget(block)
            case ev.Finish(who):
                self.finished[who] = 0
                for old in list(self.finished)[:-MAX_FINISHED]:
                    del self.finished[old]

    def left(self, request_id: str) -> Left:
        """What is left of a request that is or was here. `ValueError` for another one."""
        if request_id not in self.chain:
            raise ValueError(f"no request {request_id!r} was here; there are {', '.join(self.chain) or 'none'}")
        chain = self.chain[request_id]
        blocks = tuple(next(iter(self.holders.get(chain[i], ())), None) for i in sorted(chain))
        hit = next((at for at, block in enumerate(blocks) if block is None), len(blocks))
        prompt_only = len(blocks) * self.block_size <= self.prompt[request_id]
        return Left(request_id, blocks, hit, prompt_only)

    def latest(self) -> Left | None:
        """Of the finished requests, the one whose content began to go most recently; before that the last to finish."""
        done = [who for who in self.finished if self.chain[who]]
        return self.left(max(reversed(done), key=self.finished.__getitem__)) if done else None

    def _begin(self, who: str, prompt: int) -> None:
        """An empty chain; an id that comes again starts over."""
        self.finished.pop(who, None)
        self.chain[who], self.prompt[who] = {}, prompt

    def _link(self, who: str, index: int, digest: str) -> None:
        self.chain[who][index] = digest
        self._readers.setdefault(digest, {})[who] = index

    def _forget(self, block: int) -> None:
        digest = self.hash.pop(block, None)
        home = self.home.pop(block, ("", 0))[0]
        if digest is None:
            return
        del self.holders[digest][block]
        if self.holders[digest]:
            return  # another block holds the same
        del self.holders[digest]
        self._evictions += 2  # of those that shared it, the one that had written it counts as the last
        for who, index in self._readers.get(digest, {}).items():
            if self.finished.get(who) == 0 and self.chain[who].get(index) == digest:
                self.finished[who] = self._evictions + (who == home)

"""Patients whose books are wrong: a reference never given back, a block given away while in use, a hit too many."""

from minivllm import events as ev
from minivllm.config import EngineConfig
from minivllm.core.eviction import LRU
from minivllm.core.hashing import chain
from minivllm.core.kv_manager import KVManager
from minivllm.engine import Engine
from minivllm.lab.faults.evidence import held_and_free, held_by_nobody, where
from minivllm.lab.faults.patient import Patient, Visit
from minivllm.lab.faults.tiny import engine_with_model
from minivllm.lab.workloads import tokens_of
from minivllm.request import Request


def cache_of(engine: Engine) -> KVManager:
    """The paged cache of a patient, to be wrapped."""
    cache = engine.scheduler.cache
    if not isinstance(cache, KVManager):
        raise ValueError(f"this fault needs kv_layout='paged'; the engine has {engine.config.kv_layout!r}")
    return cache


class Leak(Patient):
    """An abort forgets one block of the request; after enough of them nothing fits any more."""

    complaint = "After some hours requests wait for ever, although hardly any are running."
    cause = "Aborting a request releases all its blocks but the last: a reference that nobody owns stays."
    cure = "Every way out of the running set must give back the whole table."
    treatments = ("release-everything",)
    instrument = "leaks"
    also = ("audit",)
    max_ticks = 120

    def build(self) -> Engine:
        """A cache whose `close` keeps the last block of an aborted request."""
        engine = Engine(EngineConfig(block_size=4, num_blocks=16))
        cache = cache_of(engine)
        close = cache.close

        def forgetful(request: Request) -> None:
            if request.finish_reason == "abort" and request.table:
                request.table.pop()
            close(request)

        if not self.cured:
            cache.close = forgetful  # type: ignore[method-assign]
        return engine

    def visits(self) -> list[Visit]:
        """Impatient users: most leave before the end."""
        return [
            Visit(1 + 3 * i, tokens_of(((f"user {i}", 6 + i % 5),)), 12, 4 + 3 * i if i % 3 else None)
            for i in range(30)
        ]

    def evidence(self) -> list[int]:
        """A request is over and still has a block: from the first abort on, for ever."""
        return held_by_nobody(self.recorder)


class Forgetful(LRU):
    """An eviction order that is not told when a hit takes a block out of it."""

    def remove(self, block: int) -> None:
        """Nothing happens: the block stays a candidate although it has a reference again."""


class BorrowedBlock(Patient):
    """A cached block that was hit stays in the eviction order, and is handed to somebody else."""

    complaint = "Now and then an answer is not what it should be, and after a while the engine stops with an error."
    cause = "A hit on a block with ref 0 does not take it out of the free queue, so it is evicted while it is in use."
    cure = "First reference all hits, taking them out of the eviction order; only then take new blocks."
    treatments = ("hits-first",)
    instrument = "audit"
    max_ticks = 200

    def build(self) -> Engine:
        """The real pool with a forgetful eviction order, which it believes without looking at the reference count."""
        config = EngineConfig(block_size=4, num_blocks=14)
        if self.cured:
            return Engine(config)
        engine = Engine(config, eviction=Forgetful)
        pool = cache_of(engine).pool
        pool._victim = pool.cached.pop  # type: ignore[method-assign]
        return engine

    def visits(self) -> list[Visit]:
        """One prefix again and again, and strangers who need its blocks."""
        shared = tokens_of((("system", 16),))
        visits = []
        for i in range(6):
            visits.append(Visit(1 + 14 * i, shared + tokens_of(((f"question {i}", 5),)), 8))
            visits.append(Visit(3 + 14 * i, tokens_of(((f"stranger {i}", 14),)), 6))
        return visits

    def evidence(self) -> list[int]:
        """A block that somebody holds stands in the free queue."""
        return held_and_free(self.recorder)


class WholePromptHit(Patient):
    """A prompt of exactly k blocks, all cached: nothing is left to compute, and no logits come out."""

    complaint = "Most days it is fine. Then somebody asks something harmless, and the engine stops with an error."
    cause = "The cache may cover the whole prompt, so the step has no token to feed and no row to sample from."
    cure = "Cap a hit at len − 1 tokens, in whole blocks: the last token is always computed."
    treatments = ("leave-the-last-token",)
    instrument = "whole hits"

    def build(self) -> Engine:
        """A cache whose `match` does not stop before the last token."""
        engine = engine_with_model(self.model, EngineConfig(block_size=4, num_blocks=32))
        cache = cache_of(engine)

        def greedy(request: Request) -> list[int]:
            hashes = chain(request.tokens, cache.block_size, request.extra_keys)
            return cache.index.match(hashes)

        if not self.cured:
            cache.match = greedy  # type: ignore[method-assign]
        return engine

    def visits(self) -> list[Visit]:
        """Prompts of 7, 8 and 9 tokens, each asked twice."""
        prompts = [tokens_of(((f"prompt {n}", n),), 512) for n in (7, 9, 8)]
        return [Visit(1 + 8 * i, prompts[i // 2], 4) for i in range(6)]

    def evidence(self) -> list[int]:
        """Somebody starts with every token of the prompt cached."""
        return where(
            self.recorder,
            lambda event: isinstance(event, ev.Admit) and event.cached == len(self.prompts[event.request]),
        )

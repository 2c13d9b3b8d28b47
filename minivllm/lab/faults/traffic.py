"""Patients whose parts are sound but do not fit their traffic: prompts, pool, block size, or who goes first."""

from collections.abc import Sequence

from minivllm.config import EngineConfig
from minivllm.core.policy import FCFS, ShortestPrompt
from minivllm.engine import Engine
from minivllm.lab.faults.patient import Patient, Visit
from minivllm.lab.workloads import tokens_of
from minivllm.request import Request

SYSTEM = tokens_of((("system", 96),))


class DynamicPrompt(Patient):
    """A clock at the front of the system prompt: no two prompts begin alike."""

    complaint = "All requests share a long system prompt, and the prefix cache hits nothing."
    cause = "The first block holds the time of day, so every chain of hashes starts anew."
    cure = "Put what changes behind what does not."
    instrument = "broken prefixes"

    def build(self) -> Engine:
        """A healthy engine."""
        return Engine(EngineConfig(block_size=8, num_blocks=256))

    def visits(self) -> list[Visit]:
        """The same question at different times."""
        visits = []
        for i in range(12):
            clock, asked = tokens_of(((f"time {i}", 4),)), tokens_of(((f"question {i}", 10),))
            visits.append(Visit(1 + 6 * i, SYSTEM + clock + asked if self.cured else clock + SYSTEM + asked, 5))
        return visits


class SmallPool(Patient):
    """More users than the pool has room for: each one's prefix is evicted before its next question."""

    complaint = "The hit rate is good in the morning and falls as users come; latency rises with it."
    cause = "The prefixes in use no longer fit the pool; least-recently-used evicts each just before its turn."
    cure = "A larger pool, or fewer users per replica: affinity routing."
    instrument = "evicted too soon"

    def build(self) -> Engine:
        """A pool for three users' prefixes, or for all."""
        return Engine(EngineConfig(block_size=8, num_blocks=128 if self.cured else 32))

    def visits(self) -> list[Visit]:
        """Users with a prefix of 64 tokens each take turns; every round there is one more."""
        visits, tick = [], 1
        for users in range(1, 7):
            for user in range(users):
                asked = tokens_of(((f"user {user}", 64), (f"question {users}.{user}", 6)))
                visits.append(Visit(tick, asked, 4))
                tick += 5
        return visits


class MostComputed(FCFS):
    """Preempts whoever has computed most, since that frees most; and so throws most work away, in turns."""

    def victim(self, running: Sequence[Request]) -> Request:
        """The one with the longest table."""
        return max(running, key=lambda request: request.num_computed)


class PingPong(Patient):
    """Near a full pool requests push one another out, and each recomputes what it had."""

    complaint = (
        "With a few more users throughput does not level off, it falls, although the device is busier than ever."
    )
    cause = "The victim of a preemption is the request with most to lose; it comes back and pushes out the next."
    cure = "Preempt the last admitted, and admit fewer: max_num_seqs, a watermark, a larger pool."
    instrument = "ping-pong"

    def build(self) -> Engine:
        """A tight pool with a policy of its own, handed in by constructor."""
        config = EngineConfig(block_size=4, num_blocks=24)
        if self.cured:
            return Engine(config.replace(max_num_seqs=2))
        return Engine(config, policy=MostComputed())

    def visits(self) -> list[Visit]:
        """Short prompts, long answers."""
        return [Visit(1, tokens_of(((f"user {i}", 6),)), 32) for i in range(12)]


class Starvation(Patient):
    """The shortest prompt always goes first, and there is always a shorter one."""

    complaint = "Median time to first token is fine; the 99th percentile is ten times that."
    cause = "Shortest-prompt-first without ageing: a long prompt waits as long as short ones keep coming."
    cure = "Ageing: whoever has waited long enough goes next."
    instrument = "overtaken"

    def build(self) -> Engine:
        """Two seats, and patience without end."""
        patience = 24 if self.cured else 10**9
        config = EngineConfig(block_size=8, num_blocks=64, max_num_seqs=2)
        return Engine(config, policy=ShortestPrompt(patience))

    def visits(self) -> list[Visit]:
        """A stream of short prompts; three long ones among them."""
        short = [Visit(1 + 3 * i, tokens_of(((f"short {i}", 8),)), 6) for i in range(90)]
        return [*short, *(Visit(10 + i, tokens_of(((f"long {i}", 100),)), 6) for i in range(3))]


class HugeBlocks(Patient):
    """Blocks so large that every request wastes most of its last one."""

    complaint = "Peak memory is far above the estimate, and few requests run at a time."
    cause = "block_size is larger than the sequences: most of a request's only block stays empty."
    cure = "A block_size well below the typical length: 16 or 32."
    instrument = "wasted ends"

    def build(self) -> Engine:
        """2,048 slots in blocks of 256, or of 16."""
        size = 16 if self.cured else 256
        return Engine(EngineConfig(block_size=size, num_blocks=2048 // size))

    def visits(self) -> list[Visit]:
        """Short questions."""
        return [Visit(1 + i // 4, tokens_of(((f"question {i}", 30 + 3 * i),)), 12) for i in range(24)]


class TinyBlocks(Patient):
    """One token to a block: nothing is wasted, and every table is as long as its text."""

    complaint = "Memory is used to the last slot, but throughput fell when paging came."
    cause = (
        "block_size 1: a block is taken, hashed and published for every token, and the kernel follows one entry each."
    )
    cure = "A block_size of 16 or more; the waste stays below half a block per request."
    instrument = "long tables"

    def build(self) -> Engine:
        """2,048 slots in blocks of one, or of 16."""
        size = 16 if self.cured else 1
        return Engine(EngineConfig(block_size=size, num_blocks=2048 // size))

    def visits(self) -> list[Visit]:
        """Prompts of ordinary length."""
        return [Visit(1 + 4 * i, tokens_of(((f"document {i}", 90 + 7 * i),)), 16) for i in range(12)]

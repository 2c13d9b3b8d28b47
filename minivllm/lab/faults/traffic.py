"""Patients whose parts are sound but do not fit their traffic: prompts, pool, or who goes first."""

from collections.abc import Sequence

from minivllm import events as ev
from minivllm.config import EngineConfig
from minivllm.core.policy import FCFS, ShortestPrompt
from minivllm.engine import Engine
from minivllm.lab.faults.evidence import computed_twice, overtaken, pushed_out, where
from minivllm.lab.faults.patient import Patient, Visit
from minivllm.lab.workloads import tokens_of
from minivllm.request import Request

SYSTEM = tokens_of((("system", 96),))


class DynamicPrompt(Patient):
    """A clock at the front of the system prompt: no two prompts begin alike."""

    complaint = "All requests share a long system prompt, and the prefix cache hits nothing."
    cause = "The first block holds the time of day, so every chain of hashes starts anew."
    cure = "Put what changes behind what does not."
    treatments = ("stable-text-first",)
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

    def evidence(self) -> list[int]:
        """Somebody who is not the first starts with nothing cached."""
        return where(self.recorder, lambda event: isinstance(event, ev.Admit) and not event.cached)[1:]


class SmallPool(Patient):
    """More users than the pool has room for: each one's prefix is evicted before its next question."""

    complaint = "The prefix cache works well in the morning, and hardly at noon."
    cause = "The prefixes in use no longer fit the pool; least-recently-used evicts each just before its turn."
    cure = "A larger pool, or fewer users on this engine."
    treatments = ("larger-pool",)
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

    def evidence(self) -> list[int]:
        """A block is evicted that is computed again later."""
        return computed_twice(self.recorder)


class MostComputed(FCFS):
    """Preempts whoever has computed most, since that frees most; and so throws most work away, again and again."""

    def victim(self, running: Sequence[Request]) -> Request:
        """The one with the longest table."""
        return max(running, key=lambda request: request.num_computed)


class PingPong(Patient):
    """Near a full pool short requests push out the long one, and it computes all that it had again."""

    complaint = "The device is busier than ever, and the report among all the questions takes for ever."
    cause = (
        "The victim of a preemption is the request with most to lose; it computes that again, and is pushed out again."
    )
    cure = "Preempt the last admitted, who has least to lose."
    treatments = ("preempt-the-last", "larger-pool")
    instrument = "ping-pong"

    def build(self) -> Engine:
        """A tight pool with a policy of its own, handed in by constructor."""
        config = EngineConfig(block_size=4, num_blocks=24, enable_prefix_caching=False)
        return Engine(config) if self.cured else Engine(config, policy=MostComputed())

    def visits(self) -> list[Visit]:
        """One long request, and a short one every other tick."""
        short = [Visit(2 + 2 * i, tokens_of(((f"question {i}", 6),)), 8) for i in range(36)]
        return [Visit(1, tokens_of((("report", 32),)), 40), *short]

    def evidence(self) -> list[int]:
        """Somebody is pushed out, or computes again."""
        return pushed_out(self.recorder)


class Starvation(Patient):
    """The shortest prompt always goes first, and there is always a shorter one."""

    complaint = "The median time to first token is excellent. Some people say that they never get an answer."
    cause = "Shortest-prompt-first without ageing: a long prompt waits as long as short ones keep coming."
    cure = "Ageing: whoever has waited long enough goes next."
    treatments = ("ageing",)
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

    def evidence(self) -> list[int]:
        """Somebody waits who was overtaken."""
        return overtaken(self.recorder)

"""A scheduler whose token budget somebody else shares out: the engine's own in everything else, blocks and queues too.

    engine = engine_with(share, EngineConfig(max_num_batched_tokens=16))

`share(budget, decodes, prompts)` is asked once per tick. `decodes`: ids of the requests that want their next token, in
order of admission. `prompts`: `(id, tokens left)` of the prompts that are not computed yet, first in line first. It
returns how many tokens each of them computes in this tick: `{id: tokens}`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from minivllm.assembly import configure
from minivllm.config import EngineConfig
from minivllm.core.cache import Shortage
from minivllm.core.plan import Draft, Plan
from minivllm.core.scheduler import Scheduler
from minivllm.engine import Engine
from minivllm.request import Request

Share = Callable[[int, list[str], list[tuple[str, int]]], Mapping[str, int]]


class BudgetScheduler(Scheduler):
    """Continuous batching in which `share` decides who computes how much. Steps are mixed; the policy is first come."""

    def __init__(self, share: Share, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.share = share
        self._granted: dict[str, int] = {}

    def plan(self) -> Plan:
        """Ask for the shares, then plan the step with them."""
        prompts = [(r.id, _length(r) - r.num_scheduled) for r in self.running if r.num_scheduled < _length(r) - 1]
        prompts += [(r.id, len(r.tokens)) for r in self.waiting]
        granted = self.share(self.max_num_batched_tokens, [r.id for r in self.running if _decodes(r)], prompts)
        self._granted = {name: int(count) for name, count in granted.items()}
        return super().plan()

    def _decode(self, draft: Draft) -> None:
        draft.budget = sum(self._granted.pop(r.id, 0) for r in self.running if _decodes(r))
        super()._decode(draft)

    def _prefill(self, draft: Draft, partial: list[Request]) -> None:
        for request in partial:
            draft.budget = self._granted.pop(request.id, 0)
            super()._prefill(draft, [request])

    def _hindrance(self, draft: Draft, request: Request) -> Shortage | None:
        draft.budget = self._granted.pop(request.id, 0)
        return super()._hindrance(draft, request)


def in_order(budget: int, wanted: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Give everybody the tokens they want, first come first served, until the budget is gone."""
    shares = {}
    for who, left in wanted:
        if count := min(left, budget):
            shares[who], budget = count, budget - count
    return shares


def ours(budget: int, decodes: list[str], prompts: list[tuple[str, int]]) -> dict[str, int]:
    """Decodes first, then prompts: what the engine's own scheduler does."""
    return in_order(budget, [*((who, 1) for who in decodes), *prompts])


def engine_with(share: Share, config: EngineConfig) -> Engine:
    """A simulated engine that shares its token budget out with `share`. No prefix cache: a hit would shorten a prompt."""
    engine = Engine(config.replace(enable_prefix_caching=False))
    scheduler = BudgetScheduler(share, engine.scheduler.cache, bus=engine.bus)
    configure(scheduler, engine.config, engine.config.num_blocks or 0, None)
    engine.scheduler = scheduler
    return engine


def _length(request: Request) -> int:
    return len(request.tokens) + request.num_pending


def _decodes(request: Request) -> bool:
    return request.num_scheduled == _length(request) - 1 and _length(request) < request.limit

"""Who runs in this tick, and what comes of it: continuous batching under one token budget.

Each step is planned anew. Decodes go first (one token each, so nobody's text stalls), then prompts that are under way,
in chunks if need be, then waiting requests as long as budget, seats and blocks last. When a decode finds no block, the
last admitted request is preempted: it gives all its blocks back and will recompute. (Yu et al. 2022, Orca; Kwon et al.
2023, §4.5; Agrawal et al. 2024, Sarathi-Serve.)
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from minivllm.allowed import shown
from minivllm.core.cache import Cache, Shortage
from minivllm.core.plan import Draft, Join, Plan
from minivllm.core.policy import FCFS, Policy
from minivllm.events import Admit, Bus, Finish, Fork, Preempt, Run, Token, Wait
from minivllm.request import Request, Status

_RULE = "pick() returns one of `waiting`, victim() one of `running`, and both leave the list as it is"


class Collected(NamedTuple):
    """What a step brought: the token of each request that got one, and the requests that ended."""

    tokens: dict[str, int]
    finished: list[Request]


class Scheduler:
    """`plan()` before the step, `collect()` after it; `add()` and `finish()` in between, at any moment."""

    def __init__(
        self, cache: Cache, *, max_num_seqs: int = 256, max_num_batched_tokens: int = 8192, chunked: bool = True,
        mixed: bool = True, spare_blocks: int = 0, policy: Policy | None = None, bus: Bus | None = None,
    ) -> None:  # fmt: skip
        self.cache = cache
        self.max_num_seqs, self.max_num_batched_tokens = max_num_seqs, max_num_batched_tokens
        self.chunked, self.mixed, self.spare_blocks = chunked, mixed, spare_blocks
        self.policy: Policy = FCFS() if policy is None else policy
        self.bus = Bus() if bus is None else bus
        self.requests: dict[str, Request] = {}  # every live request
        self.waiting: list[Request] = []
        self.running: list[Request] = []  # admission order
        self.tick = 0
        self._epochs = count(1)
        self._left: list[str] = []
        self._joined: dict[str, Request] = {}
        self._last: list[str] = []
        self._cohort = 0

    def add(self, request: Request) -> None:
        """Queue a request. Its limits and its fit were checked at the door."""
        request.arrived_tick = self.tick
        self.requests[request.id] = request
        self.waiting.append(request)

    def plan(self) -> Plan:
        """Choose the rows of the next step and take the blocks they need."""
        self.tick += 1
        draft = Draft(self.max_num_batched_tokens)
        partial = [r for r in self.running if r.num_scheduled < len(r.tokens) + r.num_pending - 1]
        if not self.mixed:  # a step holds prefills or decodes, and prefills go first
            self._prefill(draft, partial)
            self._admit(draft)
        if not draft.rows:
            self._decode(draft)
        if self.mixed:
            self._prefill(draft, partial)
            self._admit(draft)
        rows = draft.rows
        ids = [row.request_id for row in rows]
        if ids != self._last or self._left or self._joined:
            self._cohort, self._last = self._cohort + 1, ids
        if self.bus.active:
            for row in rows:
                decode = row.sample and row.count == 1 and row.start >= self.requests[row.request_id].prompt_len
                self.bus.emit(Run(row.request_id, row.start, row.count, decode, row.sample))
        left, self._left = tuple(self._left), []
        joined, self._joined = tuple(map(_join, self._joined.values())), {}
        decode_only = bool(rows) and all(row.count == 1 and row.sample for row in rows)
        return Plan(
            self.tick, tuple(rows), left, joined, tuple(draft.grown), tuple(draft.copies), tuple(draft.preempted),
            decode_only, self._cohort,
        )  # fmt: skip

    def collect(
        self, plan: Plan, tokens: Sequence[int], stops: Callable[[Request], str | None] | None = None
    ) -> Collected:
        """Book the results of a step: `tokens[i]` belongs to `plan.rows[i]` (ignored where the row samples nothing).

        Rows of a request that was aborted, finished or preempted in the meantime are dropped by their epoch. `stops` is
        asked about a request with stop strings that reaches its limit: its last token may complete one of them.
        """
        sampled: dict[str, int] = {}
        finished: list[Request] = []
        requests, size, active, caching = (
            self.requests,
            self.cache.block_size,
            self.bus.active,
            self.cache.prefix_caching,
        )
        for (request_id, epoch, start, row_count, sample), token in zip(plan.rows, tokens, strict=True):
            request = requests.get(request_id)
            if request is None or request.epoch != epoch:
                continue
            request.num_computed = done = start + row_count
            if caching and done // size > request.num_published:
                self.cache.publish(request)
            if not sample:
                continue
            request.num_pending -= 1
            known = request.tokens
            known.append(token)
            sampled[request_id] = token
            if active:
                self.bus.emit(Token(request_id, token, len(known) == request.prompt_len + 1))
            if verdict := request.verdict():
                if stops and verdict[0] == "length" and request.params.stop_strings and (stop := stops(request)):
                    verdict = "stop", stop
                self.finish(request, *verdict)
                finished.append(request)
        return Collected(sampled, finished)

    def finish(self, request: Request, reason: str, detail: int | str | None = None) -> None:
        """End a request at any moment, from any state: its blocks are released at once, late tokens will be dropped."""
        request.finish_reason, request.stop_reason = reason, detail
        if self.bus.active:
            text = None if detail is None else str(detail)
            self.bus.emit(Finish(request.id, reason, len(request.tokens) - request.prompt_len, text))
        (self.waiting if request.status is Status.WAITING else self.running).remove(request)
        if request.status is Status.RUNNING:
            self._leave(request)
        request.status = Status.FINISHED
        self.cache.close(request)
        del self.requests[request.id]  # last, so that `restart` can finish what an interrupt left half done

    def fork(self, parent: Request, child: Request) -> bool:
        """Start `child` on its parent's blocks. False: they cannot be shared now, so it waits and computes its own."""
        child.arrived_tick = self.tick
        self.requests[child.id] = child
        shareable = parent.status is Status.RUNNING and len(self.running) < self.max_num_seqs
        if not shareable or not self.cache.fork(parent, child):
            child.num_computed = 0
            self.waiting.append(child)
            return False
        child.num_scheduled = child.num_computed
        child.num_cached = min(child.num_computed, child.prompt_len)
        self._start(child)
        if self.bus.active:
            blocks, room = tuple(child.table), child.limit - child.prompt_len
            self.bus.emit(
                Fork(parent.id, child.id, blocks, child.prompt_len, len(child.tokens), child.num_computed, room)
            )
        return True

    def preempt(self, request: Request, by: str) -> None:
        """Give a running request's blocks back; it waits, in front, to recompute them. Tokens are kept."""
        if self.bus.active:
            self.bus.emit(Preempt(request.id, request.num_computed, by))
        self.running.remove(request)
        self._leave(request)
        self.cache.close(request)
        request.rewind()
        request.num_preemptions += 1
        self.waiting.insert(0, request)

    def victim(self) -> Request:
        """Whom the policy would preempt now."""
        known = len(self.running)
        victim = self.policy.victim(self.running)
        if len(self.running) != known:
            raise ValueError(f"the policy changed the list of running requests; {_RULE}")
        if victim not in self.running:
            raise ValueError(f"the policy's victim is {shown(victim)}, which is not running; {_RULE}")
        return victim

    def recover(self, plan: Plan) -> None:
        """A step's results will never come: every running request recomputes, and the runner is told so once more."""
        self._left += plan.left
        for request in reversed(tuple(self.running)):
            self.preempt(request, request.id)

    def restart(self, cache: Cache) -> None:
        """Go on over an empty cache: running requests wait again, in order and in front, and the runner knows nobody.

        Trusts nothing but the set of live requests, since an interrupt may have left the rest half done.
        """
        known = dict.fromkeys([*self.running, *self.waiting, *self.requests.values()])
        live = [request for request in known if self.requests.get(request.id) is request]
        for request in live:
            request.rewind()
            request.table, request.hashes, request.cow = [], [], False
            if verdict := request.verdict():
                request.finish_reason, request.stop_reason = verdict
                request.status = Status.FINISHED
        self.waiting = [request for request in live if request.status is Status.WAITING]
        self.requests = {request.id: request for request in self.waiting}
        self.cache, self.running, self._left, self._joined = cache, [], [], {}

    def _decode(self, draft: Draft) -> None:
        """One token for every request whose prompt is done, preempting from the back when blocks run out."""
        size = self.cache.block_size
        for request in tuple(self.running):
            total = len(request.tokens) + request.num_pending
            if request.num_scheduled != total - 1 or total >= request.limit:
                continue  # prompt under way, or its last token is already being sampled
            if not draft.budget:
                return
            if (total > len(request.table) * size or request.cow) and not self._grow(draft, request, total):
                continue
            draft.add(request, total)

    def _grow(self, draft: Draft, request: Request, end: int) -> bool:
        """Blocks up to position `end`, taken from others if need be; False if the request itself had to go."""
        if request.status is not Status.RUNNING:  # an earlier row preempted it
            return False
        while (growth := self.cache.grow(request, end)) is None:
            victim = self.victim()
            self.preempt(victim, request.id)
            draft.drop(victim)
            if victim is request:
                return False
        draft.grown += [(request.id, index, block) for index, block in growth.blocks]
        draft.copies += growth.copies
        return True

    def _prefill(self, draft: Draft, partial: list[Request]) -> None:
        """The next chunk of every prompt that is under way."""
        for request in partial:
            if draft.budget and request.status is Status.RUNNING:
                draft.add(request, len(request.tokens) + request.num_pending)

    def _admit(self, draft: Draft) -> None:
        """Start waiting requests until seats, budget or blocks are gone. A step that preempted admits nobody."""
        while self.waiting:
            known = len(self.waiting)
            request = self.policy.pick(self.waiting, self.cache, self.tick)
            if len(self.waiting) != known:
                raise ValueError(f"the policy changed the list of waiting requests; {_RULE}")
            if request not in self.waiting:
                raise ValueError(f"the policy picked {shown(request)}, which is not waiting; {_RULE}")
            short = self._hindrance(draft, request) or self.cache.open(
                request, self.spare_blocks if self.running else 0
            )
            if short:
                if self.bus.active:
                    self.bus.emit(Wait(request.id, short.reason, short.need, short.available))
                return
            self.waiting.remove(request)
            resumed = request.num_cached is not None
            if not resumed:
                request.num_cached = request.num_computed
            self._start(request)
            if self.bus.active:
                self.bus.emit(Admit(request.id, request.num_computed, resumed))
            draft.add(request, len(request.tokens))

    def _hindrance(self, draft: Draft, request: Request) -> Shortage | None:
        """What keeps a request from starting now, other than memory."""
        if draft.preempted:
            return Shortage(0, 0, "preempted")
        if len(self.running) >= self.max_num_seqs:
            return Shortage(0, 0, "seats")
        unchunked = not self.chunked and draft.rows and len(request.tokens) > draft.budget
        return Shortage(0, 0, "budget") if unchunked or not draft.budget else None

    def _start(self, request: Request) -> None:
        request.epoch = next(self._epochs)
        request.status = Status.RUNNING
        self.running.append(request)
        self._joined[request.id] = request

    def _leave(self, request: Request) -> None:
        self._left.append(request.id)
        self._joined.pop(request.id, None)  # it was forked, and goes before the runner heard of it


def _join(request: Request) -> Join:
    return Join(
        request.id, tuple(request.tokens), request.prompt_len, tuple(request.table), request.params, request.stop_ids,
        request.seed,
    )  # fmt: skip

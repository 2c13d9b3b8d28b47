"""Behind the engine's face: what a step's results do to requests, texts and forks, and how everything is made anew.

`Engine` is built on this. Nothing here is called from outside.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any

from minivllm import events as ev
from minivllm.allowed import name_for
from minivllm.assembly import EvictionFactory, build_cache
from minivllm.config import EngineConfig
from minivllm.core.hashing import Hasher
from minivllm.core.plan import Plan
from minivllm.core.scheduler import Scheduler
from minivllm.intake import letters, set_limit
from minivllm.output import RequestOutput, StepReport
from minivllm.picture import opening, picture
from minivllm.recorder import MAX_FINISHED
from minivllm.request import Request, SamplingParams, Status
from minivllm.results import Results
from minivllm.runtime.ticket import Runner, StepResult


class Books:
    """The engine's bookkeeping around a scheduler and a runner."""

    bus: ev.Bus
    config: EngineConfig
    closed: bool
    number: int
    max_model_len: int
    tokenizer: Any
    runner: Runner
    scheduler: Scheduler
    _eviction: EvictionFactory | None
    _hasher: Hasher

    def __init__(self) -> None:
        self._results = Results(self.tokenizer)
        self._finished: dict[str, Request] = {}
        self._forking: dict[str, Request] = {}  # n > 1, other samples still to be started
        self._flying: tuple[Plan, Any] | None = None  # a step that was launched, and its ticket
        self._torn = False  # putting the books in order was itself cut short: it is done anew before anything else
        self._names, self._arrivals = count(), count()  # a generator would end for ever when it is interrupted

    def _collect(self, plan: Plan, result: StepResult, read_all: bool) -> StepReport:
        """Book a step's results: tokens, text and stop strings, forks, finished outputs."""
        if result.logprobs or result.prompt_logprobs:
            self._results.book(plan, result, self.scheduler.requests)
        collected = self.scheduler.collect(plan, result.tokens, self._results.stops)
        ended = collected.finished
        text: dict[str, str] = {}
        if read_all or self._results.watched:
            text = self._read(collected.tokens if read_all else self._results.watched & collected.tokens.keys(), ended)
        self._fork_samples()
        outputs = tuple(output for request in ended if (output := self._close_book(request)))
        finished = tuple(output.request_id for output in outputs)
        return StepReport(
            self.scheduler.tick, plan.num_tokens, collected.tokens, text, finished, plan.preempted, outputs
        )

    def _read(self, names: Iterable[str], ended: list[Request]) -> dict[str, str]:
        """New visible text of the requests named; those that reached a stop string end here and join `ended`."""
        text: dict[str, str] = {}
        if self.tokenizer is None:
            return text
        over = {request.id: request for request in ended}
        for name in names:
            request = over.get(name) or self.scheduler.requests[name]
            piece = self._results.read(request)
            stop = self._results.stopped(request)
            if stop is not None and request.status is not Status.FINISHED:
                self.scheduler.finish(request, "stop", stop)
                ended.append(request)
            if piece:
                text[name] = piece
                if self.bus.active:
                    self.bus.emit(ev.Text(name, piece))
        return text

    def _close_book(self, request: Request) -> RequestOutput | None:
        self._finished[request.id] = request
        while len(self._finished) > MAX_FINISHED:
            del self._finished[next(iter(self._finished))]
        return self._results.finish(request)

    def _end(self, ending: list[Request], reason: str, detail: str | None) -> None:
        """End these requests; if one of them fails on its way out, the others end all the same."""
        for at, request in enumerate(ending):
            self._forking.pop(request.id, None)
            try:
                self.scheduler.finish(request, reason, detail)
                self._close_book(request)
            except BaseException:  # interrupted, or an eviction order of the user's own failed
                self._recover(None)
                left = [one for one in ending[at + 1 :] if self.scheduler.requests.get(one.id) is one]
                self._end(left, reason, detail)
                raise

    def _fork(self, parent: Request, name: str, params: SamplingParams, length: int, index: int | None) -> None:
        """A child with the first `length` tokens of its parent. With `index` it belongs to its parent's n > 1 group."""
        arrival = next(self._arrivals)
        apart = arrival if index is None else index  # it draws its own tokens from here on
        seed = (parent.seed + apart * 0x9E3779B9 + 2**63) % 2**64 - 2**63  # 64 bits
        child = Request(
            name, parent.tokens[:length], params, limit=parent.limit, limit_detail=parent.limit_detail,
            stop_ids=parent.stop_ids, extra_keys=parent.extra_keys, priority=parent.priority,
            arrival=arrival, seed=seed,
        )  # fmt: skip
        child.prompt_len = parent.prompt_len
        child.num_computed = min(parent.num_computed, length - 1)
        child.group = None if index is None else parent.id
        if self.scheduler.fork(parent, child) is False and self.bus.active:
            room, generated = child.limit - child.prompt_len, length - child.prompt_len
            self.bus.emit(ev.Arrive(name, child.prompt_len, room, generated))
        self._finished.pop(name, None)
        self._results.track(child)
        if index is None:
            self._results.inherit(parent, child)

    def _fork_samples(self) -> None:
        """Start the other samples of n > 1 requests whose first token has come: their prompt is computed by then."""
        for name, parent in [(n, r) for n, r in self._forking.items() if len(r.tokens) > r.prompt_len]:
            for index in range(len(self._results.samples(name)), parent.params.n):
                child = f"{name}.{index}"
                while self._in_use(child):  # somebody chose this very id
                    child += "'"
                self._fork(parent, child, replace(parent.params, n=1), parent.prompt_len, index)
            del self._forking[name]

    def _recover(self, plan: Plan | None) -> None:
        """After an interrupt or an error inside a step: every running request will recompute, nothing is lost.

        With a `plan` the runner was cut short: whether its results exist is unknown, so nothing of it is published.
        Without one it was the bookkeeping, which is made anew, with an empty cache, and told anew to those who listen.
        """
        self._torn, plan = True, None if self._torn else plan  # first of all: a second interrupt may come at any moment
        if self.closed:
            return
        if self.bus.active:
            self.bus.emit(ev.Fail(plan is None))
        if plan is not None:
            self.scheduler.recover(plan)
        else:
            self._results.purge()
            self._settle()
            self._rebuild(self.config, self._eviction)
        self._fork_samples()
        try:
            for request in self._results.ended():
                self._close_book(request)
        except Exception:  # a text that cannot be made would fail for ever, and keep the others from going on
            self._torn = False
            raise
        if plan is None and self.bus.active:
            now = picture(self.scheduler, self.config, self._finished.values())
            for event in opening(self.config, self.scheduler.policy, now):
                if not isinstance(event, ev.Start | ev.End):
                    self.bus.emit(event)
        if self.bus.active:
            self.bus.emit(ev.Mend())
        self._torn = False

    def _settle(self) -> None:
        """Before the books are made anew: whoever no group knows never came; a stop string that is there ends its request."""
        requests, tracked = self.scheduler.requests, self._results.tracked()
        for request in [r for r in requests.values() if r.id not in tracked]:
            del requests[request.id]
            for queue in (self.scheduler.waiting, self.scheduler.running):
                if request in queue:
                    queue.remove(request)
        for request in requests.values():
            verdict = request.verdict()
            if request.params.stop_strings and request.output_tokens and (verdict is None or verdict[0] == "length"):
                try:
                    stop = self._results.stops(request, last=verdict is not None)
                except Exception:  # a tokenizer that fails keeps nobody from going on
                    stop = None
                if stop is not None:
                    request.finish_reason, request.stop_reason = "stop", stop

    def _forget(self, name: str) -> None:
        """A request was interrupted on its way in: it never came."""
        self._forking.pop(name, None)
        self._results.forget(name)
        self.scheduler.requests.pop(name, None)
        self._recover(None)

    def _rebuild(self, config: EngineConfig, eviction: EvictionFactory | None) -> None:
        """A new pool and KV manager; live requests go back to the queue, in order, with their tokens."""
        blocks: int = config.num_blocks  # type: ignore[assignment]
        cache = build_cache(config, blocks, self.max_model_len, self.bus, eviction, self._hasher)
        live = [request for request in self.scheduler.requests.values() if not request.verdict()]
        limits = [(r.limit, r.limit_detail) for r in live]
        try:
            for request in live:
                set_limit(request, cache, self.max_model_len)
                if request.limit <= len(request.tokens):
                    raise ValueError(
                        f"request {request.id!r} has {len(request.tokens)} tokens, the new pool holds less"
                    )
            self.runner.resize(blocks, config.block_size)
        except BaseException:
            for request, (limit, detail) in zip(live, limits, strict=True):
                request.limit, request.limit_detail = limit, detail
            raise
        self.scheduler.restart(cache)

    def _name(self, wanted: str | None) -> str:
        """The id asked for, if it is free; None takes the next letters."""
        if wanted is None:
            return next(name for number in self._names if not self._in_use(name := letters(number)))
        if self._in_use(name_for("request id", wanted)):
            raise ValueError(f"request id {wanted!r} is in use; live requests: {', '.join(self.scheduler.requests)}")
        return wanted

    def _live(self, name: str) -> Request | None:
        return self.scheduler.requests.get(name) if isinstance(name, str) else None

    def _in_use(self, name: str) -> bool:
        return name in self.scheduler.requests or self._results.holds(name)

    def _check_grounded(self) -> None:
        self._check_whole()
        if self._flying:
            raise RuntimeError(
                "a step is in flight: let the loop over outputs(ahead=True) end first, or leave ahead out"
            )

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeError(f"engine {self.number} is closed; make a new one")

    def _check_whole(self) -> None:
        """Open, and mended: for whatever changes something. Who only looks may be a listener in the middle of it."""
        self._check_open()
        if self._torn:
            self._recover(None)

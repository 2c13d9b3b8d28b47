"""The engine: requests in, one tick at a time, tokens out. `step()` is the whole idea in three lines.

    plan = scheduler.plan()             who runs, from which token, how many; blocks are taken
    ticket = runner.launch(plan)        the work starts
    scheduler.collect(plan, tokens)     tokens appended, full blocks published, finished requests freed

`run()` is the same three calls; on a GPU it keeps one ticket in flight, so that the next step is planned while the last
one computes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from minivllm import events as ev
from minivllm.allowed import name_for, shown, whole
from minivllm.assembly import (
    REBUILD,
    SIMULATED_BLOCKS,
    EvictionFactory,
    build_cache,
    build_scheduler,
    check_parts,
    configure,
    revise,
)  # fmt: skip
from minivllm.books import Books
from minivllm.config import EngineConfig
from minivllm.core.audit import audit
from minivllm.core.hashing import Hasher, block_hash
from minivllm.core.plan import Plan
from minivllm.core.policy import Policy
from minivllm.core.scheduler import Scheduler
from minivllm.detokenizer import Detokenizer
from minivllm.intake import PRIORITIES, check_params, check_tokens, encode, make_request
from minivllm.output import RequestOutput, StepReport
from minivllm.picture import engine_event, free_queue, opening, picture
from minivllm.recorder import Recorder
from minivllm.request import Request, SamplingParams, Status
from minivllm.results import Results
from minivllm.runtime.sim import SimRunner
from minivllm.runtime.ticket import Runner
from minivllm.snapshot import Snapshot

if TYPE_CHECKING:
    from minivllm.kernels.ops import Ops
    from minivllm.model.weights import LoadedModel

_NUMBERS = count(1)


class Engine(Books):
    """A live inference engine. Without a model it simulates: real scheduler, real cache, tokens from a hash.

    What the course teaches can be replaced here: `policy` (an object), `eviction` (a class), `hasher` (a function),
    `runner`, and `kernels` (an `Ops` object or a name). Use it as a context manager, or `close()` it, to free memory.
    """

    def __init__(
        self,
        config: EngineConfig | None = None,
        *,
        model: "LoadedModel | None" = None,
        policy: Policy | None = None,
        eviction: EvictionFactory | None = None,
        hasher: Hasher | None = None,
        runner: Runner | None = None,
        kernels: "Ops | str | None" = None,
    ) -> None:
        config = EngineConfig() if config is None else config
        hasher = block_hash if hasher is None else hasher
        if not isinstance(config, EngineConfig):
            raise ValueError(f"config is {shown(config)}; give an EngineConfig")
        if model is not None and not hasattr(model, "spec"):
            raise ValueError(f"model is {shown(model)}; give what `minivllm.model.load` returns, or use LLM({model!r})")
        check_parts(policy=policy, eviction=eviction, hasher=hasher, runner=runner, kernels=kernels)
        self.number = next(_NUMBERS)
        self.bus = ev.Bus()
        self.closed = False
        longest = 8192
        if model is not None:
            longest = model.spec.max_position
            if config.max_model_len is not None and config.max_model_len > longest:
                raise ValueError(f"max_model_len is {config.max_model_len}; {model.name} allows at most {longest}")
        self.max_model_len = config.max_model_len or min(longest, 8192)
        self.tokenizer = None if model is None else model.tokenizer
        self._eos = frozenset() if model is None else frozenset(model.spec.eos_token_ids)
        if runner is None and model is not None:
            from minivllm.runtime.runner import ModelRunner  # torch is imported only when there is a model to run

            model_runner = ModelRunner(model, config, self.max_model_len, kernels)
            runner, num_blocks = model_runner, model_runner.num_blocks
        else:
            num_blocks = config.num_blocks or SIMULATED_BLOCKS
            runner = SimRunner(num_blocks, config.block_size) if runner is None else runner
        self.model = model
        self.config = config.replace(num_blocks=num_blocks)
        self.runner: Runner = runner
        self._policy, self._eviction, self._hasher = policy, eviction, hasher
        cache = build_cache(self.config, num_blocks, self.max_model_len, self.bus, eviction, hasher)
        self.scheduler: Scheduler = build_scheduler(self.config, cache, num_blocks, self.bus, policy)
        super().__init__()

    # -- requests ------------------------------------------------------------------------------------------------

    def add(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        adapter: str | None = None,
    ) -> str:
        """Queue a request and return its id. Nothing is queued when a `ValueError` is raised.

        `prompt`: text (needs a model) or token ids. `priority`: smaller goes first under policy "priority". Requests
        with different `cache_salt` or `adapter` never share blocks; an empty string is refused, None means none.
        """
        self._check_whole()
        text = prompt if isinstance(prompt, str) else None
        if text is not None:
            prompt = encode(self.tokenizer, text)
        tokens = check_tokens(prompt, self.runner.vocab_size, self.max_model_len)  # type: ignore[arg-type]
        given = (("salt", cache_salt), ("adapter", adapter))
        tags = tuple((tag, name_for(tag, value)) for tag, value in given if value is not None)
        params = SamplingParams() if params is None else params
        check_params(params, self.runner.vocab_size, self.tokenizer is not None, self._eos)
        priority = whole("priority", priority, *PRIORITIES)
        name = self._name(request_id)
        request = make_request(
            name, tokens, params, self.scheduler.cache, max_model_len=self.max_model_len,
            max_prompt=None if self.config.enable_chunked_prefill else self.config.max_num_batched_tokens,
            eos=self._eos, seed=self.config.seed, arrival=next(self._arrivals), priority=priority, extra_keys=tags,
        )  # fmt: skip
        try:
            self._finished.pop(name, None)
            self._results.track(request, text)
            if params.n > 1:
                self._forking[name] = request
            self.scheduler.add(request)
            if self.bus.active:
                self.bus.emit(ev.Arrive(name, request.prompt_len, request.limit - request.prompt_len))
        except BaseException:  # interrupted, or a listener failed
            self._forget(name)
            raise
        return name

    def abort(self, request_id: str) -> bool:
        """End a request now, from any state, with every sample of it (n > 1), and free their blocks.

        One sample can be ended alone by its own id. False if there is no such live request.
        """
        self._check_whole()
        samples = self._results.samples(request_id) if isinstance(request_id, str) else []
        ending = [r for r in samples if r.status is not Status.FINISHED]
        if not ending and (one := self._live(request_id)):
            ending = [one]
        self._end(ending, "abort", None)
        return bool(ending)

    def fork(self, request_id: str, *, new_id: str | None = None) -> str:
        """A second request that goes on from where a running one is, sharing its blocks (copy-on-write), and its id.

        Both say the same as long as they are greedy; at a temperature the new one draws its own tokens.
        Raises `ValueError` if the request is not running or is still computing what it knows already.
        """
        self._check_whole()
        parent = self._live(request_id)
        if parent is None or parent.status is not Status.RUNNING or parent.num_computed < len(parent.tokens) - 1:
            raise ValueError(f"request {request_id!r} cannot be forked: it must be running, with all its past computed")
        name = self._name(new_id)
        try:
            self._fork(parent, name, replace(parent.params, n=1), len(parent.tokens), None)
        except BaseException:
            self._forget(name)
            raise
        return name

    # -- ticks ---------------------------------------------------------------------------------------------------

    def step(self) -> StepReport:
        """One tick: plan, launch, collect. With nothing to do it is an empty tick."""
        self._check_grounded()
        scheduler = self.scheduler
        if self.bus.active:
            self.bus.emit(ev.Start(scheduler.tick + 1))
        plan = None
        try:
            plan = scheduler.plan()
            result = self.runner.wait(self.runner.launch(plan))
            launched, plan = plan, None
            report = self._collect(launched, result, read_all=True)
        except BaseException:
            self._recover(plan)
            raise
        finally:
            if self.bus.active:
                self.bus.emit(ev.End(scheduler.tick, free_queue(scheduler)))
        return report

    def run(self, max_steps: int | None = None) -> list[RequestOutput]:
        """Step until nothing is left to do (or `max_steps`); the outputs of the requests that finished, in that order.

        One ticket is kept in flight when the runner is asynchronous and nobody listens to the events.
        """
        return list(self.outputs(max_steps, ahead=True))

    def outputs(self, max_steps: int | None = None, *, ahead: bool = False) -> Iterator[RequestOutput]:
        """As `run()`, but each output is yielded when its request finishes.

        Between two outputs you may do anything to the engine, and leave early. With `ahead` a step may be in flight even
        then: faster, for those who only look. Raises `RuntimeError` where two such loops, or a step in one, would meet.
        """
        self._check_grounded()
        if max_steps is not None:
            max_steps = whole("max_steps", max_steps, 0)
        overlap = self.config.async_scheduling and self.runner.asynchronous and not self.bus.active
        for report in self._overlapped(ahead) if overlap and max_steps is None else self._steps(max_steps):
            yield from report.outputs

    def stream(self, request_id: str) -> Iterator[str]:
        """Step the engine and yield a request's text as it becomes visible, until it ends. Other requests go on too.

        All of its text comes, whoever steps the engine in between: you, `run()` or another stream. Leaving the loop early
        aborts the request, with its other samples.
        """
        self._check_open()
        request = self._live(request_id)
        if request is None:
            raise ValueError(f"no live request {request_id!r}; live: {', '.join(self.scheduler.requests) or 'none'}")
        return self._pieces(request, self._results.reader(request))  # taken now: it outlives its request

    # -- looking -------------------------------------------------------------------------------------------------

    @property
    def has_unfinished(self) -> bool:
        """Whether any request still waits or runs."""
        return bool(self.scheduler.requests)

    @property
    def tick(self) -> int:
        """Ticks so far."""
        return self.scheduler.tick

    def result(self, request_id: str) -> RequestOutput:
        """What a request has produced so far, or in the end. Raises `KeyError` for an unknown id."""
        self._check_open()
        return self._results.output(request_id)

    def snapshot(self) -> Snapshot:
        """An immutable picture of pool, tables and queues between two ticks."""
        self._check_open()
        return picture(self.scheduler, self.config, self._finished.values())

    def record(self) -> Recorder:
        """Start recording events; a recorder attached late begins with what is there now."""
        self._check_open()
        return Recorder(self.bus, opening(self.config, self.scheduler.policy, self.snapshot()))

    def audit(self) -> list[str]:
        """Everything that is wrong with the bookkeeping, in words; [] when healthy."""
        self._check_open()
        return audit(self.scheduler)

    # -- changing ------------------------------------------------------------------------------------------------

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes (after changing weights, say). False, and nothing done, if a block is in use."""
        self._check_whole()
        try:
            dropped = self.scheduler.cache.reset()
        except BaseException:  # interrupted, or an eviction order of the user's own failed
            self._recover(None)
            raise
        if dropped and self.bus.active:
            self.bus.emit(ev.Reset(dropped))
        return dropped is not None

    def reconfigure(
        self, *, policy: Policy | str | None = None, eviction: EvictionFactory | str | None = None, **changes: Any
    ) -> None:
        """Change settings on the running engine; weights stay, running requests are carried over with the same text.

        A new block_size keeps the pool's size in tokens unless `num_blocks` is given too. A change of the pool, its
        layout or its cache starts with an empty pool: running requests recompute. Raises `ValueError`, with nothing
        changed, for settings that cannot change or that a live request does not fit.
        """
        self._check_grounded()
        given = (("policy", policy), ("eviction", eviction))
        parts: dict[str, Any] = {name: part for name, part in given if part is not None}
        own = {name: None if isinstance(part, str) else part for name, part in parts.items()}
        check_parts(**own)
        changes |= {name: part for name, part in parts.items() if isinstance(part, str)}
        names = set(changes) | set(parts)
        config = revise(self.config, changes, self.runner)
        new_policy, new_eviction = own.get("policy", self._policy), own.get("eviction", self._eviction)
        limits = {request.id: request.limit for request in self.scheduler.requests.values()}
        begun = False
        try:
            if names & REBUILD:
                self._rebuild(config, new_eviction)
            begun = True
            configure(self.scheduler, config, config.num_blocks, new_policy)  # type: ignore[arg-type]
            self.config, self._policy, self._eviction = config, new_policy, new_eviction
            if self.bus.active:
                self.bus.emit(engine_event(config, self.scheduler.policy, bool(names & REBUILD), tuple(sorted(names))))
                for request in self.scheduler.requests.values():
                    if request.limit != limits[request.id]:
                        self.bus.emit(ev.Limit(request.id, request.limit - request.prompt_len))
        except BaseException as error:
            if begun or not isinstance(error, ValueError):  # out of memory, interrupted, a failing part: start empty
                configure(self.scheduler, self.config, self.config.num_blocks, self._policy)  # type: ignore[arg-type]
                self._recover(None)
            raise

    def close(self) -> None:
        """Free the K/V pool and the weights. Twice is fine; anything else raises `RuntimeError` afterwards."""
        if not self.closed:
            self.closed = True
            self.runner.close()
            self.model = self.tokenizer = None
            self._results = Results(None)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"tick {self.tick}, {len(self.scheduler.requests)} live requests"
        return f"Engine {self.number} ({state})"

    # -- the ways to go on --------------------------------------------------------------------------------------

    def _pieces(self, request: Request, reader: Detokenizer | None) -> Iterator[str]:
        shown = 0
        try:
            while True:
                over = request.status is Status.FINISHED
                if over and reader is not None:  # others may have stepped without reading
                    self._results.feed(request, reader)
                    reader.finish()
                if reader is not None and len(reader.text) > shown:
                    piece, shown = reader.text[shown:], len(reader.text)
                    yield piece
                if over:
                    return
                if request.status is not Status.FINISHED:
                    self.step()
        finally:
            if self.scheduler.requests.get(request.id) is request and not self.closed:
                self.abort(request.id)

    def _steps(self, max_steps: int | None) -> Iterator[StepReport]:
        while self.has_unfinished and max_steps != 0:
            max_steps = None if max_steps is None else max_steps - 1
            yield self.step()

    def _overlapped(self, ahead: bool) -> Iterator[StepReport]:
        """Launch the next step before waiting for the last: the host plans while the device computes.

        Whoever gets an output may step, abort or close: unless they go `ahead`, the step in flight is waited for first.
        When somebody has begun to listen, the engine goes on step by step, so that they hear of whole ticks.
        """
        plan: Plan | None = None
        try:
            while self._flying or (self.has_unfinished and not self.bus.active):
                self._check_open()
                plan, ticket = None, None
                if not self.bus.active:
                    plan = self.scheduler.plan()
                    ticket = self.runner.launch(plan)
                landed = self._flying
                result = self.runner.wait(landed[1]) if landed else None
                launched, plan = plan, None
                self._flying = (launched, ticket) if launched and launched.rows else None
                if landed and result:
                    reports = [self._collect(landed[0], result, read_all=False)]
                    if self._flying and reports[0].outputs and not ahead:
                        (last, ticket), self._flying = self._flying, None
                        reports.append(self._collect(last, self.runner.wait(ticket), read_all=False))
                    yield from reports
        except GeneratorExit:  # the reader left: the step in flight is booked, and nothing is lost
            flown, self._flying = self._flying, None
            if flown and not self.closed:
                try:
                    self._collect(flown[0], self.runner.wait(flown[1]), read_all=False)
                except BaseException:
                    self._recover(None)
                    raise
            raise
        except BaseException:
            self._flying = None
            self._recover(plan)
            raise
        yield from self._steps(None)

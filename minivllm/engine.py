"""The engine: requests in, one tick at a time, tokens out. `step()` is the whole idea in three lines.

    plan = scheduler.plan()             who runs, from which token, how many; blocks are taken
    ticket = runner.launch(plan)        the work starts
    scheduler.collect(plan, tokens)     tokens appended, full blocks published, finished requests freed

`run()` is the same three calls; on a GPU it keeps one ticket in flight, so that the next step is planned while the last
one computes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from minivllm import events as ev
from minivllm.assembly import SIMULATED_BLOCKS, EvictionFactory, build_cache, build_scheduler, configure
from minivllm.config import EngineConfig
from minivllm.core.audit import audit
from minivllm.core.hashing import Hasher, block_hash
from minivllm.core.plan import Plan
from minivllm.core.policy import Policy
from minivllm.core.scheduler import Scheduler
from minivllm.intake import check_tokens, letters, make_request, set_limit
from minivllm.output import RequestOutput, StepReport
from minivllm.picture import engine_event, free_queue, opening, picture
from minivllm.recorder import MAX_FINISHED, Recorder
from minivllm.request import Request, SamplingParams, Status
from minivllm.results import Results
from minivllm.runtime.sim import SimRunner
from minivllm.runtime.ticket import Runner, StepResult
from minivllm.snapshot import Snapshot

if TYPE_CHECKING:
    from minivllm.kernels.ops import Ops
    from minivllm.model.weights import LoadedModel

_NUMBERS = count(1)
_REBUILD = {"block_size", "num_blocks", "kv_layout", "reservation", "allocator", "eviction", "prefix_cache_blocks"}
_REBUILD |= {"enable_prefix_caching", "verify_prefix_hits"}
_LIVE = {
    "max_num_seqs",
    "max_num_batched_tokens",
    "enable_chunked_prefill",
    "mix_prefill_decode",
    "watermark",
    "policy",
}
_LIVE |= {"async_scheduling"}


class Engine:
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
        hasher: Hasher = block_hash,
        runner: Runner | None = None,
        kernels: "Ops | str | None" = None,
    ) -> None:
        self.number = next(_NUMBERS)
        self.bus = ev.Bus()
        self.closed = False
        config = EngineConfig() if config is None else config
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
        self._results = Results(self.tokenizer)
        self._finished: dict[str, Request] = {}
        self._forking: dict[str, Request] = {}
        self._names = letters()
        self._arrivals = count()

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
        self._check_open()
        text = prompt if isinstance(prompt, str) else None
        if text is not None:
            if self.tokenizer is None:
                raise ValueError("a text prompt needs a model with a tokenizer; this engine simulates: give token ids")
            prompt = self.tokenizer.encode(text)
        tokens = check_tokens(prompt, self.runner.vocab_size, self.max_model_len)  # type: ignore[arg-type]
        tags = tuple((tag, value) for tag, value in (("salt", cache_salt), ("adapter", adapter)) if value is not None)
        for tag, value in tags:
            if not isinstance(value, str) or not value:
                raise ValueError(f"{tag} is {value!r}; give a name that is not empty, or None for none")
        params = SamplingParams() if params is None else params
        self._check_params(params)
        name = request_id if request_id is not None else self._free_name()
        self._check_free(name)
        request = make_request(
            name, tokens, params, self.scheduler.cache, max_model_len=self.max_model_len,
            max_prompt=None if self.config.enable_chunked_prefill else self.config.max_num_batched_tokens,
            eos=self._eos, seed=self.config.seed, arrival=next(self._arrivals), priority=priority, extra_keys=tags,
        )  # fmt: skip
        self.scheduler.add(request)
        self._finished.pop(name, None)
        self._results.track(request, text)
        if params.n > 1:
            self._forking[name] = request
        if self.bus.active:
            self.bus.emit(ev.Arrive(name, request.prompt_len, request.limit - request.prompt_len))
        return name

    def abort(self, request_id: str) -> bool:
        """End a request now, from any state, and free its blocks. False if there is no such live request."""
        self._check_open()
        request = self.scheduler.requests.get(request_id)
        if request is None:
            return False
        self._end(request, "abort", None)
        return True

    def abort_group(self, request_id: str) -> None:
        """Abort a request and everything forked from it by n > 1."""
        for request in [r for r in self.scheduler.requests.values() if request_id in (r.id, r.group)]:
            self._end(request, "abort", None)

    def fork(self, request_id: str, *, new_id: str | None = None) -> str:
        """A second request that goes on from where a running one is, sharing its blocks (copy-on-write), and its id.

        Raises `ValueError` if the request is not running or is still computing what it knows already.
        """
        self._check_open()
        parent = self.scheduler.requests.get(request_id)
        if parent is None or parent.status is not Status.RUNNING or parent.num_computed < len(parent.tokens) - 1:
            raise ValueError(f"request {request_id!r} cannot be forked: it must be running, with all its past computed")
        name = new_id or self._free_name()
        self._check_free(name)
        self._fork(parent, name, replace(parent.params, n=1), len(parent.tokens), None)
        return name

    # -- ticks ---------------------------------------------------------------------------------------------------

    def step(self) -> StepReport:
        """One tick: plan, launch, collect. With nothing to do it is an empty tick."""
        self._check_open()
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
        return list(self.outputs(max_steps))

    def outputs(self, max_steps: int | None = None) -> Iterator[RequestOutput]:
        """As `run()`, but each output is yielded when its request finishes."""
        self._check_open()
        ahead = self.config.async_scheduling and self.runner.asynchronous and not self.bus.active and max_steps is None
        for report in self._overlapped() if ahead else self._steps(max_steps):
            yield from [self._results.output(name) for name in report.finished]

    def stream(self, request_id: str) -> Iterator[str]:
        """Step the engine and yield a request's text as it becomes visible, until it ends. Other requests go on too.

        Leaving the loop early aborts the request.
        """
        self._check_open()
        request = self.scheduler.requests.get(request_id)
        if request is None:
            raise ValueError(f"no live request {request_id!r}; live: {', '.join(self.scheduler.requests) or 'none'}")
        try:
            while request.status is not Status.FINISHED:
                piece = self.step().text.get(request_id)
                if piece:
                    yield piece
        finally:
            if not self.closed:
                self.abort(request_id)

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
        return self._results.output(request_id)

    def snapshot(self) -> Snapshot:
        """An immutable picture of pool, tables and queues between two ticks."""
        self._check_open()
        return picture(self.scheduler, self.config, self._finished.values())

    def record(self) -> Recorder:
        """Start recording events; a recorder attached late begins with what is there now."""
        self._check_open()
        return Recorder(self.bus, opening(self.config, self.snapshot()))

    def audit(self) -> list[str]:
        """Everything that is wrong with the bookkeeping, in words; [] when healthy."""
        return audit(self.scheduler)

    # -- changing ------------------------------------------------------------------------------------------------

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes (after changing weights, say). False, and nothing done, if a block is in use."""
        self._check_open()
        dropped = self.scheduler.cache.reset()
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
        self._check_open()
        names = set(changes)
        new_policy, new_eviction = self._policy, self._eviction
        if policy is not None:
            names.add("policy")
            new_policy = None if isinstance(policy, str) else policy
            changes |= {"policy": policy} if isinstance(policy, str) else {}
        if eviction is not None:
            names.add("eviction")
            new_eviction = None if isinstance(eviction, str) else eviction
            changes |= {"eviction": eviction} if isinstance(eviction, str) else {}
        if refused := sorted(names - _REBUILD - _LIVE):
            raise ValueError(
                f"{', '.join(refused)} cannot change on a running engine; these can: {_list(_REBUILD | _LIVE)}"
            )
        seats = getattr(self.runner, "max_num_seqs", None)
        if seats is not None and changes.get("max_num_seqs", 0) > seats:
            raise ValueError(f"max_num_seqs is {changes['max_num_seqs']}; this engine was built with {seats} seats, at most so many")
        if "block_size" in changes and "num_blocks" not in changes:
            tokens = self.config.num_blocks * self.config.block_size  # type: ignore[operator]
            changes["num_blocks"] = max(1, tokens // max(1, changes["block_size"]))
        config = self.config.replace(**changes)
        limits = {request.id: request.limit for request in self.scheduler.requests.values()}
        if names & _REBUILD:
            self._rebuild(config, new_eviction)
        self.config, self._policy, self._eviction = config, new_policy, new_eviction
        configure(self.scheduler, config, config.num_blocks, new_policy)  # type: ignore[arg-type]
        if self.bus.active:
            self.bus.emit(engine_event(config, bool(names & _REBUILD), tuple(sorted(names))))
            for request in self.scheduler.requests.values():
                if request.limit != limits[request.id]:
                    self.bus.emit(ev.Limit(request.id, request.limit - request.prompt_len))

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

    # -- inside --------------------------------------------------------------------------------------------------

    def _collect(self, plan: Plan, result: StepResult, read_all: bool) -> StepReport:
        """Book a step's results: tokens, text and stop strings, forks, finished outputs."""
        collected = self.scheduler.collect(plan, result.tokens)
        if result.logprobs or result.prompt_logprobs:
            self._results.book(result)
        ended = collected.finished
        text: dict[str, str] = {}
        if read_all or self._results.watched:
            text = self._read(collected.tokens if read_all else self._results.watched & collected.tokens.keys(), ended)
        self._fork_samples()
        finished = [output.request_id for request in ended if (output := self._close_book(request))]
        return StepReport(self.tick, plan.num_tokens, collected.tokens, text, tuple(finished), plan.preempted)

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
            elif stop is not None:
                request.finish_reason, request.stop_reason = "stop", stop
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

    def _end(self, request: Request, reason: str, detail: str | None) -> None:
        self._forking.pop(request.id, None)
        self.scheduler.finish(request, reason, detail)
        self._close_book(request)

    def _fork(self, parent: Request, name: str, params: SamplingParams, length: int, index: int | None) -> None:
        """A child with the first `length` tokens of its parent. With `index` it belongs to its parent's n > 1 group."""
        seed = parent.seed if index is None else parent.seed + index * 0x9E3779B9
        child = Request(
            name, parent.tokens[:length], params, limit=parent.limit, limit_detail=parent.limit_detail,
            stop_ids=parent.stop_ids, extra_keys=parent.extra_keys, priority=parent.priority,
            arrival=next(self._arrivals), seed=seed,
        )  # fmt: skip
        child.prompt_len = parent.prompt_len
        child.num_computed = min(parent.num_computed, length - 1)
        child.group = None if index is None else parent.id
        if self.scheduler.fork(parent, child) is False and self.bus.active:
            room, generated = child.limit - child.prompt_len, length - child.prompt_len
            self.bus.emit(ev.Arrive(name, child.prompt_len, room, generated))
        self._finished.pop(name, None)
        self._results.track(child)

    def _fork_samples(self) -> None:
        """Start the other samples of n > 1 requests whose first token has come: their prompt is computed by then."""
        for name, parent in [(n, r) for n, r in self._forking.items() if len(r.tokens) > r.prompt_len]:
            for index in range(self._results.samples(name), parent.params.n):
                child = f"{name}.{index}"
                while self._in_use(child):  # somebody chose this very id
                    child += "'"
                self._fork(parent, child, replace(parent.params, n=1), parent.prompt_len, index)
            del self._forking[name]

    def _steps(self, max_steps: int | None) -> Iterator[StepReport]:
        while self.has_unfinished and max_steps != 0:
            max_steps = None if max_steps is None else max_steps - 1
            yield self.step()

    def _overlapped(self) -> Iterator[StepReport]:
        """Launch the next step before waiting for the last: the host plans while the device computes."""
        flying: tuple[Plan, Any] | None = None
        plan: Plan | None = None
        try:
            while self.has_unfinished or flying:
                plan = None
                plan = self.scheduler.plan()
                ticket = self.runner.launch(plan)
                result = self.runner.wait(flying[1]) if flying else None
                launched, plan = plan, None
                if flying and result:
                    yield self._collect(flying[0], result, read_all=False)
                flying = (launched, ticket) if launched.rows else None
        except BaseException:
            self._recover(plan)
            raise

    def _recover(self, plan: Plan | None) -> None:
        """After an interrupt or an error inside a step: every running request will recompute, nothing is lost.

        With a `plan` the runner was cut short: whether its results exist is unknown, so nothing of it is published.
        Without one it was the bookkeeping, which is made anew, with an empty cache, and told anew to those who listen.
        """
        if self.closed:
            return
        if plan is not None:
            self.scheduler.recover(plan)
        else:
            self._rebuild(self.config, self._eviction)
        self._fork_samples()
        for request in self._results.ended():
            self._close_book(request)
        if plan is None and self.bus.active:
            for event in opening(self.config, self.snapshot()):
                if not isinstance(event, ev.Start | ev.End):
                    self.bus.emit(event)

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

    def _free_name(self) -> str:
        return next(name for name in self._names if not self._in_use(name))

    def _check_free(self, name: str) -> None:
        if self._in_use(name):
            raise ValueError(f"request id {name!r} is in use; live requests: {', '.join(self.scheduler.requests)}")

    def _in_use(self, name: str) -> bool:
        return name in self.scheduler.requests or self._results.holds(name)

    def _check_params(self, params: SamplingParams) -> None:
        if not isinstance(params, SamplingParams):
            raise TypeError(f"params is a {type(params).__name__}; give a SamplingParams")
        if params.stop_strings and self.tokenizer is None:
            raise ValueError("stop strings need a model with a tokenizer; use stop_token_ids")
        wrong = [t for t in (*params.logit_bias, *params.stop_token_ids) if not 0 <= t < self.runner.vocab_size]
        if wrong:
            raise ValueError(f"token id {wrong[0]} is out of range; allowed: 0 to {self.runner.vocab_size - 1}")

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeError(f"engine {self.number} is closed; make a new one")


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names))

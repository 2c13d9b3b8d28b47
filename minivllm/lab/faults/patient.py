"""A patient: one engine, its traffic, and the instruments that were held to it while it ran."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from minivllm.allowed import shown
from minivllm.engine import Engine
from minivllm.lab import instruments as look
from minivllm.metrics import Metrics
from minivllm.request import SamplingParams

INSTRUMENTS = (
    "audit", "leaks", "tables", "nan", "inexact", "whole hits", "broken prefixes", "evicted too soon", "ping-pong",
    "overtaken", "wasted ends", "long tables",
)  # fmt: skip


class Visit(NamedTuple):
    """A request that comes before a tick; aborted before tick `abort` if given."""

    tick: int
    prompt: list[int]
    output: int
    abort: int | None = None


class Patient:
    """A subclass gives the engine in `build` and its traffic in `visits`; everything else is the same for all.

    `complaint` is what its owner sees; `cause`, `cure` and `instrument` (which one shows it) are for after the
    diagnosis. `treatments` name the cure in a word, and others that help too; the docstring of `evidence` says what to
    look for. `also`: instruments that show the same fault from another side. Raises `TypeError` for a `build` or
    `visits` that gives something else.
    """

    complaint: ClassVar[str]
    cause: ClassVar[str]
    cure: ClassVar[str]
    treatments: ClassVar[tuple[str, ...]] = ()
    instrument: ClassVar[str]
    also: ClassVar[tuple[str, ...]] = ()
    max_ticks: ClassVar[int] = 600

    def __init__(self, *, cured: bool = False, model: Any = None) -> None:
        self.cured, self.model = cured, model
        self.engine = self.build()
        if not isinstance(self.engine, Engine):
            raise TypeError(f"`build` gave {shown(self.engine)}; it must return an Engine")
        visits = self.visits()
        if not isinstance(visits, list | tuple) or not all(isinstance(visit, Visit) for visit in visits):
            raise TypeError(f"`visits` gave {shown(visits)}; it must return a list of Visit(tick, prompt, output)")
        self.metrics = Metrics(self.engine)
        self.recorder = self.engine.record()
        self.answers: dict[str, list[int]] = {}
        self.prompts: dict[str, list[int]] = {}
        self.error: Exception | None = None
        self._found: dict[str, list[str]] = {}
        self._due = sorted(visits, key=lambda visit: visit.tick)
        self._aborts: list[tuple[int, str]] = []
        self._scope: Any = None
        if hasattr(self.engine.runner, "decoder"):
            from minivllm.lab.tensors import Stethoscope  # torch is imported only for a patient with a model

            self._scope = Stethoscope(self.engine)

    def build(self) -> Engine:
        """The engine, sick unless `self.cured`."""
        raise NotImplementedError

    def visits(self) -> list[Visit]:
        """The traffic."""
        raise NotImplementedError

    def evidence(self) -> list[int]:
        """The ticks in which the fault can be seen, after a run."""
        raise NotImplementedError

    @property
    def done(self) -> bool:
        """Whether everybody has come, and was answered or has left."""
        return not self._due and not self.engine.has_unfinished

    def step(self) -> None:
        """Let in who is due, one tick, and hold the instruments of bookkeeping to the engine. An error ends the run."""
        engine = self.engine
        while self._due and self._due[0].tick <= engine.tick + 1:
            visit = self._due.pop(0)
            params = SamplingParams(temperature=0.0, max_tokens=visit.output, ignore_eos=True)
            name = engine.add(visit.prompt, params)
            self.prompts[name] = visit.prompt
            if visit.abort is not None:
                self._aborts.append((visit.abort, name))
        for tick, name in self._aborts:
            if tick == engine.tick + 1:
                engine.abort(name)
        try:
            for name in engine.step().finished:
                self.answers[name] = engine.result(name).outputs[0].token_ids
        except (RuntimeError, ValueError, IndexError) as error:
            self.error = error
        checks: dict[str, Callable[[], list[str]]] = {
            "audit": engine.audit,
            "leaks": lambda: look.leak_report(engine),
            "tables": lambda: look.table_diff(engine),
        }
        for name, check in checks.items():
            if name not in self._found and (found := check()):
                self._found[name] = [f"tick {engine.tick}: {line}" for line in found]

    def twin(self) -> "Patient":
        """The same engine in good health, which nobody has visited, and to which no instrument listens."""
        healthy = type(self)(cured=True, model=self.model)
        if healthy._scope:
            healthy._scope.remove()
        return healthy

    def say(self, prompt: list[int], tokens: int) -> list[int]:
        """What this engine answers to `prompt`, greedily; alone, if nobody else is there."""
        name = self.engine.add(prompt, SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True))
        self.engine.run()
        return self.engine.result(name).outputs[0].token_ids

    def run(self) -> "Patient":
        """To the end of the traffic, an error, or `max_ticks`."""
        while not self.done and self.engine.tick < self.max_ticks and not self.error:
            self.step()
        return self

    def examine(self) -> dict[str, list[str]]:
        """What every instrument shows, after a run: [] where it is silent."""
        size, prompts = self.engine.config.block_size, list(self.prompts.values())
        late = {
            "nan": list(self._scope.nan.values()) if self._scope else [],
            "inexact": list(self._scope.inexact.values()) if self._scope else [],
            "whole hits": look.whole_prompt_hits(self.recorder),
            "broken prefixes": look.broken_prefixes(prompts, self.metrics, size),
            "evicted too soon": look.evicted_too_soon(self.recorder),
            "ping-pong": look.ping_pong(self.metrics),
            "overtaken": look.overtaken(self.recorder),
            "wasted ends": look.wasted_ends(self.metrics),
            "long tables": look.long_tables(self.metrics, self.recorder),
        }
        return {name: late[name] if name in late else self._found.get(name, []) for name in INSTRUMENTS}

    def close(self) -> None:
        """Free the engine."""
        self.engine.close()

    def __enter__(self) -> "Patient":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

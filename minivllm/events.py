"""Everything that happens in the engine, one small immutable record each, and the bus that carries them.

Events are built only when somebody listens (`if bus.active: bus.emit(...)`), so a silent engine pays nothing.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, TypeVar


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events. `kind` is its name in JSON; `phase` is the call it happens in."""

    kind: ClassVar[str] = "event"
    phase: ClassVar[str] = "plan"

    def to_dict(self) -> dict[str, Any]:
        """A plain dict for JSON, `kind` first."""
        return {"kind": self.kind, **asdict(self)}


E = TypeVar("E", bound=Event)
_REGISTRY: dict[str, type[Event]] = {}


def _event(kind: str, phase: str) -> Callable[[type[E]], type[E]]:
    def register(cls: type[E]) -> type[E]:
        cls.kind, cls.phase = kind, phase
        _REGISTRY[kind] = cls
        return cls

    return register


def from_dict(data: dict[str, Any]) -> Event:
    """The event a dict of `to_dict` describes. Raises `ValueError` for an unknown kind or wrong fields."""
    fields = dict(data)
    kind = fields.pop("kind", None)
    if kind not in _REGISTRY:
        raise ValueError(f"unknown event kind {kind!r}; known: {', '.join(sorted(_REGISTRY))}")
    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    try:
        return _REGISTRY[kind](**fields)
    except TypeError as error:
        raise ValueError(f"event {kind!r}: {error}") from None


# fmt: off
@_event("engine", "engine")
@dataclass(frozen=True, slots=True)
class Engine(Event):
    """The settings: at the start, and after every `reconfigure()`. `rebuilt`: the pool is new and empty, and requests
    that ran wait again. With nothing `changed` it opens a history: everything that is there is told after it."""

    block_size: int
    num_blocks: int
    layout: str = "paged"
    policy: str = "fcfs"
    prefix_caching: bool = True
    max_num_batched_tokens: int = 0
    rebuilt: bool = True
    changed: tuple[str, ...] = ()        # names of the settings that reconfigure() changed; () at the start


@_event("start", "plan")
@dataclass(frozen=True, slots=True)
class Start(Event):
    """A tick begins."""

    tick: int


@_event("arrive", "plan")
@dataclass(frozen=True, slots=True)
class Arrive(Event):
    """A request was added and waits. Emitted between ticks. One that has a past (a fork that waits, or a recording that
    began late) brings its `generated` tokens, the prompt tokens it found `cached` and its `preemptions`."""

    request: str
    prompt_tokens: int
    max_tokens: int
    generated: int = 0
    cached: int = 0
    preemptions: int = 0


@_event("limit", "engine")
@dataclass(frozen=True, slots=True)
class Limit(Event):
    """`reconfigure()` changed how many tokens a request may generate in all: the pool is larger or smaller now."""

    request: str
    max_tokens: int


@_event("hit", "plan")
@dataclass(frozen=True, slots=True)
class Hit(Event):
    """A cached block joins a request's table; `ref` is its count afterwards."""

    request: str
    block: int
    index: int
    ref: int


@_event("evict", "plan")
@dataclass(frozen=True, slots=True)
class Evict(Event):
    """A cached block loses its content; `request` takes it next (None: it only becomes free)."""

    block: int
    hash: str
    request: str | None = None


@_event("take", "plan")
@dataclass(frozen=True, slots=True)
class Take(Event):
    """A block joins a request's table at logical `index` with ref 1."""

    request: str
    block: int
    index: int


@_event("copy", "plan")
@dataclass(frozen=True, slots=True)
class Copy(Event):
    """Copy-on-write: the request's logical `index` moves from the shared block `source` to its own block `block`."""

    request: str
    source: int
    block: int
    index: int


@_event("reserve", "plan")
@dataclass(frozen=True, slots=True)
class Reserve(Event):
    """Contiguous layout: an extent of `blocks` blocks from `block` on, of which `reserved` may ever be used."""

    request: str
    block: int
    blocks: int
    reserved: int


@_event("admit", "plan")
@dataclass(frozen=True, slots=True)
class Admit(Event):
    """A waiting request starts running; `cached` of its tokens need not be computed."""

    request: str
    cached: int
    resumed: bool = False


@_event("wait", "plan")
@dataclass(frozen=True, slots=True)
class Wait(Event):
    """The next request in line was not admitted. `reason`: memory, hole, seats, budget, or preempted (a step that
    preempted admits nobody). `need` and `available` are blocks for memory, `hole` the largest free extent."""

    request: str
    reason: str
    need: int = 0
    available: int = 0


@_event("preempt", "plan")
@dataclass(frozen=True, slots=True)
class Preempt(Event):
    """A running request gives its blocks back and waits again; `lost` computed tokens must be recomputed."""

    request: str
    lost: int
    by: str


@_event("run", "launch")
@dataclass(frozen=True, slots=True)
class Run(Event):
    """A row of the step: positions start … start+count-1 are computed; `sample` if a token comes out, `decode` if the row
    feeds just the newest generated token."""

    request: str
    start: int
    count: int
    decode: bool
    sample: bool


@_event("token", "collect")
@dataclass(frozen=True, slots=True)
class Token(Event):
    """A sampled token reached the host; `first` for the first one of its request."""

    request: str
    token: int
    first: bool


@_event("text", "collect")
@dataclass(frozen=True, slots=True)
class Text(Event):
    """New visible text of a request (only with a tokenizer)."""

    request: str
    text: str


@_event("publish", "collect")
@dataclass(frozen=True, slots=True)
class Publish(Event):
    """A full, computed block can be found by its hash from now on."""

    request: str
    block: int
    index: int
    hash: str
    parent: str | None


@_event("release", "collect")
@dataclass(frozen=True, slots=True)
class Release(Event):
    """A request lets go of a block; `ref` is its count afterwards, `cached` whether it stays findable."""

    request: str
    block: int
    ref: int
    cached: bool


@_event("finish", "collect")
@dataclass(frozen=True, slots=True)
class Finish(Event):
    """A request ended: reason stop, length or abort; `detail` says which stop or limit."""

    request: str
    reason: str
    tokens: int
    detail: str | None = None


@_event("fork", "collect")
@dataclass(frozen=True, slots=True)
class Fork(Event):
    """A new request shares its parent's blocks (ref counts + 1)."""

    parent: str
    request: str
    blocks: tuple[int, ...]
    prompt_tokens: int
    tokens: int
    computed: int
    max_tokens: int


@_event("fail", "engine")
@dataclass(frozen=True, slots=True)
class Fail(Event):
    """A step was cut short by an error or an interrupt. What follows, up to `Mend`, puts the books in order: running
    requests are preempted, or, if `rebuilt`, the pool starts over and all that is there is told anew."""

    rebuilt: bool


@_event("mend", "engine")
@dataclass(frozen=True, slots=True)
class Mend(Event):
    """The books are in order again after a failure."""


@_event("reset", "engine")
@dataclass(frozen=True, slots=True)
class Reset(Event):
    """The prefix cache was emptied; `blocks` lost their hashes."""

    blocks: tuple[int, ...]


@_event("end", "collect")
@dataclass(frozen=True, slots=True)
class End(Event):
    """A tick is over. `free` is the free queue, next block to be taken first (only for pools up to 1,024 blocks)."""

    tick: int
    free: tuple[int, ...] = field(default=())
# fmt: on

Listener = Callable[[Event], None]


class Bus:
    """Hands each event to every listener, in order of subscription."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self.active = False

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; returns the function that removes it."""
        self._listeners.append(listener)
        self.active = True
        return lambda: self._remove(listener)

    def emit(self, event: Event) -> None:
        """Deliver `event`. Callers test `bus.active` first, so that nothing is built for nobody.

        The error of a listener that raises goes to the caller. It gets no further events, or it would fail again while
        the engine puts its books in order.
        """
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                self._remove(listener)
                raise

    def _remove(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
        self.active = bool(self._listeners)

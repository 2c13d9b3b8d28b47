"""The engine in words: one sentence per tick, one line per event, told from the events alone.

The same sentence is printed, shown above every picture, read out by a screen reader and checked by the tests.
"""

from collections.abc import Callable, Iterable, Sequence

from minivllm import events as ev

MANY = 6
"""Above this many live requests a tick is told in counts, not in names."""

_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_WHY_WAIT = {
    "seats": "every seat is taken",
    "budget": "the token budget of this tick is spent",
    "preempted": "a tick that preempts admits nobody",
}


class Who(str):
    """A request's id inside a sentence; pictures draw it as its coloured letter."""

    __slots__ = ()


Spans = list[str]
"""A sentence in pieces, `Who` where a request is named. `"".join(spans)` is the plain text."""


def number(n: int) -> str:
    """`n` in words up to twelve, else in digits with thousands separated."""
    return _WORDS[n] if 0 <= n < len(_WORDS) else f"{n:,}"


def count(n: int, noun: str) -> str:
    """`1 block`, `2 blocks`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def listing(items: Sequence[str], most: int = 6) -> Spans:
    """`A, B and C`; after `most` of them the rest is counted."""
    shown = list(items[:most])
    tail = [f"{len(items) - most} more"] if len(items) > most else []
    spans: Spans = []
    for at, item in enumerate([*shown, *tail]):
        if at:
            spans.append(" and " if at == len(shown) + len(tail) - 1 else ", ")
        spans.append(item)
    return spans


def why_wait(event: ev.Wait) -> str:
    """The reason of a `Wait` in words."""
    if event.reason == "memory":
        return f"it needs {count(event.need, 'block')} and {event.available} could be had"
    if event.reason == "hole":
        return f"it needs {count(event.need, 'block')} in a row and the largest hole has {event.available}"
    return _WHY_WAIT.get(event.reason, event.reason)


def line(event: ev.Event) -> str:
    """One log line for one event, for the verbose text log."""
    match event:
        case ev.Engine(changed=()):
            return f"engine: {event.num_blocks} blocks of {event.block_size} slots, {event.layout}, {event.policy}"
        case ev.Engine():
            return f"engine: {', '.join(event.changed)} changed; {event.num_blocks} blocks of {event.block_size} slots"
        case ev.Start(tick):
            return f"tick {tick}"
        case ev.Arrive(who, prompt, limit):
            return f"{who} arrives: {count(prompt, 'prompt token')}, at most {limit} to come"
        case ev.Limit(who, limit):
            return f"{who} may generate at most {count(limit, 'token')} now"
        case ev.Hit(who, block, index, ref):
            return f"{who} hits block {block} as its block {index}, ref {ref}"
        case ev.Evict(block, digest, who):
            return f"block {block} forgets hash {digest[:4]}" + (f"; {who} takes it" if who else "")
        case ev.Take(who, block, index):
            return f"{who} takes block {block} as its block {index}"
        case ev.Copy(who, source, block, index):
            return f"{who} copies shared block {source} to its own block {block} (its block {index})"
        case ev.Reserve(who, block, blocks, reserved):
            return f"{who} reserves blocks {block} to {block + blocks - 1} for {count(reserved, 'token')}"
        case ev.Admit(who, cached, resumed):
            return f"{who} starts{' again' if resumed else ''}, {count(cached, 'token')} from the cache"
        case ev.Wait(who):
            return f"{who} waits: {why_wait(event)}"
        case ev.Preempt(who, lost, by):
            return f"{who} is preempted for {by} and loses {count(lost, 'computed token')}"
        case ev.Run(who, start, n, decode):
            return f"{who} {'decodes' if decode else 'prefills'} {count(n, 'token')} from position {start}"
        case ev.Token(who, token, first):
            return f"{who} gets {'its first token' if first else 'token'} {token}"
        case ev.Text(who, text):
            return f"{who} says {text!r}"
        case ev.Publish(who, block, index, digest):
            return f"{who}'s block {index} (block {block}) is full: hash {digest[:4]}"
        case ev.Release(who, block, ref, cached):
            after = f"ref {ref}" if ref else "stays cached" if cached else "free"
            return f"{who} lets go of block {block}: {after}"
        case ev.Finish(who, reason, tokens):
            return f"{who} is done after {count(tokens, 'token')} ({event.detail or reason})"
        case ev.Fork(parent, who, blocks):
            return f"{who} forks from {parent}: shares {count(len(blocks), 'block')}"
        case ev.Fail(rebuilt):
            return f"the step failed{': the pool starts over, empty' if rebuilt else ''}; whoever ran waits again"
        case ev.Mend():
            return "the books are in order again"
        case ev.Reset(blocks):
            return f"prefix cache emptied: {count(len(blocks), 'block')} forget their hashes"
        case ev.End(tick):
            return f"tick {tick} ends"
    return event.kind


class Narrator:
    """Tells tick after tick; remembers what a sentence needs from earlier ones: who wrote a block, who is live."""

    def __init__(self) -> None:
        self.home: dict[int, str] = {}  # block -> the request that published its content
        self.prompt: dict[str, int] = {}
        self.tokens: dict[str, int] = {}  # prompt and generated ones, for a request that must start again
        self.running: dict[str, None] = {}
        self.waiting: dict[str, None] = {}

    def tell(self, events: Iterable[ev.Event]) -> Spans:
        """The sentence for one tick's events. Call it for every tick once, in order."""
        told = list(events)
        homes = {e.block: self.home.get(e.block, "") for e in told if isinstance(e, ev.Evict)}
        for event in told:
            self._follow(event)
        told, failure = until_failure(told)
        parts = self._crowd(told) if len(self.running) + len(self.waiting) > MANY else self._names(told, homes)
        if failure:
            parts.append([f"{line(failure)[0].upper()}{line(failure)[1:]}."])
        spans = [piece for at, part in enumerate(p for p in parts if p) for piece in ([" "] if at else []) + part]
        whole = any(isinstance(e, ev.Start) for e in told)
        return spans or (["Nothing happened: nobody runs and nobody waits."] if whole else [])

    def _follow(self, event: ev.Event) -> None:
        match event:
            case ev.Engine():
                if event.rebuilt:
                    self.home.clear()
                    self.waiting = {**self.running, **self.waiting}
                    self.running = {}
            case ev.Arrive(who, prompt):
                self.prompt[who] = self.tokens[who] = prompt
                self.waiting[who] = None
            case ev.Admit(who):
                self.waiting.pop(who, None)
                self.running[who] = None
            case ev.Fork(_, who):
                self.prompt[who], self.tokens[who] = event.prompt_tokens, event.tokens
                self.running[who] = None
            case ev.Preempt(who):
                self.running.pop(who, None)
                self.waiting[who] = None
            case ev.Finish(who):
                self.running.pop(who, None)
                self.waiting.pop(who, None)
            case ev.Token(who):
                self.tokens[who] = self.tokens.get(who, 0) + 1
            case ev.Publish(who, block):
                self.home[block] = who

    def _names(self, told: list[ev.Event], homes: dict[int, str]) -> list[Spans]:
        return [
            *_engine(told), *_preempted(told), *self._started(told), *self._worked(told), _evicted(told, homes),
            *_waits(told), *_finished(told), _arrived(told),
        ]  # fmt: skip

    def _started(self, told: list[ev.Event]) -> list[Spans]:
        runs = {e.request: e for e in told if isinstance(e, ev.Run)}
        firsts = {e.request for e in told if isinstance(e, ev.Token) and e.first}
        parts: list[Spans] = []
        for admit in (e for e in told if isinstance(e, ev.Admit)):
            who, run = admit.request, runs.get(admit.request)
            spans: Spans = [Who(who), " starts again" if admit.resumed else " starts"]
            if admit.cached:
                spans.append(f" with {count(admit.cached, 'token')} from the cache")
            if run and who in firsts:
                spans.append(f", computes {'the rest of ' if admit.cached else ''}its prompt and gets its first token")
            elif run:
                spans.append(f" and computes {count(run.count, 'token' if admit.resumed else 'prompt token')}")
                left = 0 if run.sample else self.tokens.get(who, 0) - run.start - run.count
                spans.append(f", {left} to go" if left > 0 else "")
            parts.append([*spans, "."])
        return parts

    def _worked(self, told: list[ev.Event]) -> list[Spans]:
        new = {e.request for e in told if isinstance(e, ev.Admit)}
        firsts = [e.request for e in told if isinstance(e, ev.Token) and e.first and e.request not in new]
        done = {e.request for e in told if isinstance(e, ev.Finish)}
        parts: list[Spans] = [
            [*listing([Who(w) for w in firsts]), f" finish{'es its' if len(firsts) == 1 else ' their'} prompt"
             f"{'' if len(firsts) == 1 else 's'} and get{'s its' if len(firsts) == 1 else ' their'} first token."]
        ] if firsts else []  # fmt: skip
        for run in (e for e in told if isinstance(e, ev.Run) and not e.decode and e.request not in new):
            if run.request not in firsts:
                noun = "more prompt token" if run.start + run.count <= self.prompt.get(run.request, 0) else "more token"
                parts.append([Who(run.request), f" computes {count(run.count, noun)}."])
        decoding = [e.request for e in told if isinstance(e, ev.Run) and e.decode and e.request not in done]
        if decoding:
            each = "each get" if len(decoding) > 1 else "gets"
            parts.append([*listing([Who(w) for w in decoding]), f" {each} one more token."])
        return parts

    def _crowd(self, told: list[ev.Event]) -> list[Spans]:
        def of(kind: type) -> int:
            return sum(isinstance(e, kind) for e in told)

        taken, evicted = of(ev.Take), of(ev.Evict)
        parts = [*_engine(told)]
        parts.append([f"{len(self.running):,} requests run, {len(self.waiting):,} wait."])
        if taken:
            share = "" if taken == 1 else "all of them " if evicted >= taken else f"{number(evicted)} of them "
            cache = f", {share}out of the cache" if evicted else ""
            parts.append([f"{count(taken, 'block')} {'was' if taken == 1 else 'were'} taken{cache}."])
        tail = [
            f"{n:,} {words}"
            for n, words in (
                (of(ev.Hit), "block hits"), (of(ev.Preempt), "preempted"), (of(ev.Finish), "finished"),
                (sum(isinstance(e, ev.Token) and e.first for e in told), "got their first token"),
            ) if n
        ]  # fmt: skip
        return [*parts, [*listing(tail), "."] if tail else []]


def until_failure(told: list[ev.Event]) -> tuple[list[ev.Event], ev.Fail | None]:
    """What happened without the tidying up after a failure, and the failure, if there was one."""
    for at, event in enumerate(told):
        if isinstance(event, ev.Fail):
            mended = next((later for later in range(at, len(told)) if isinstance(told[later], ev.Mend)), len(told))
            return told[:at] + told[mended + 1 :], event
    return told, None


def sentence(events: Iterable[ev.Event], narrator: Narrator | None = None) -> str:
    """One sentence (a short paragraph) for one tick's events, as plain text."""
    return "".join((narrator or Narrator()).tell(events))


def _to(event: ev.Engine) -> str:
    return f" to {event.max_num_batched_tokens:,}" if event.changed == ("max_num_batched_tokens",) else ""


def _engine(told: list[ev.Event]) -> list[Spans]:
    return [
        [f"{' and '.join(e.changed)} changed{_to(e)}" + (f": the pool starts over with {count(e.num_blocks, 'empty block')} of "
         f"{count(e.block_size, 'slot')}." if e.rebuilt else ".")]
        for e in told if isinstance(e, ev.Engine) and e.changed
    ]  # fmt: skip


def _preempted(told: list[ev.Event]) -> list[Spans]:
    return [
        [Who(e.request), " is preempted", *([" to let ", Who(e.by), " grow"] if e.by != e.request else []),
         f" and loses {count(e.lost, 'computed token')}."]
        for e in told if isinstance(e, ev.Preempt)
    ]  # fmt: skip


def _evicted(told: list[ev.Event], homes: dict[int, str]) -> Spans:
    lost = [e for e in told if isinstance(e, ev.Evict)]
    if not lost:
        return []
    writers = list(dict.fromkeys(homes[e.block] for e in lost if homes[e.block]))
    were = "was" if len(lost) == 1 else "were"
    of: Spans = [" of ", *listing([Who(w) for w in writers])] if writers else []
    return [f"To make room, {number(len(lost))} cached block{'s' if len(lost) > 1 else ''}", *of, f" {were} evicted."]


def _waits(told: list[ev.Event]) -> list[Spans]:
    return [[Who(e.request), f" waits: {why_wait(e)}."] for e in told if isinstance(e, ev.Wait)]


def _finished(told: list[ev.Event]) -> list[Spans]:
    parts: list[Spans] = []
    for e in (e for e in told if isinstance(e, ev.Finish)):
        kept = sum(isinstance(r, ev.Release) and r.request == e.request and r.cached and r.ref == 0 for r in told)
        verb = " was aborted" if e.reason == "abort" else " finished"
        parts.append([Who(e.request), verb, f" and left {count(kept, 'block')} in the cache." if kept else "."])
    return parts


def _arrived(told: list[ev.Event]) -> Spans:
    gone: Callable[[str], bool] = lambda who: any(  # noqa: E731
        isinstance(e, ev.Admit | ev.Wait) and e.request == who for e in told
    )
    new = [Who(e.request) for e in told if isinstance(e, ev.Arrive) and not gone(e.request)]
    return (
        [*listing(new), f" arrive{'s' if len(new) == 1 else ''} and wait{'s' if len(new) == 1 else ''}."] if new else []
    )

"""A tick as a short list: events under plan, launch and collect, like facts merged, at most twelve lines."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from minivllm import events as ev
from minivllm.narrate import Spans, Who, count, line, listing, until_failure, why_wait

MOST = 12
"""Above this many lines a tick is folded, one line per kind of event."""

E = TypeVar("E", bound=ev.Event)


@dataclass(frozen=True)
class Line:
    """One line: which glyph and phase, the words, and the blocks that a pointer on it should ring."""

    phase: str
    kind: str
    words: tuple[str, ...]
    blocks: tuple[int, ...] = ()

    @property
    def loss(self) -> bool:
        """Whether the line tells of something lost."""
        return self.kind in ("evict", "preempt")

    @property
    def text(self) -> str:
        """The words without their markup."""
        return "".join(self.words)

    def to_list(self) -> list[Any]:
        """`[phase, kind, spans, blocks]`; a request is `{"who": id}`."""
        return [self.phase, self.kind, spans_to_json(self.words), list(self.blocks)]


def spans_to_json(spans: Iterable[str]) -> list[Any]:
    """Spans for a browser: text stays text, a request becomes `{"who": id}`."""
    return [{"who": str(s)} if isinstance(s, Who) else s for s in spans]


def tick_log(events: Iterable[ev.Event], prompts: dict[str, int], homes: dict[int, str]) -> list[Line]:
    """The lines of one tick. `prompts`: prompt tokens by request; `homes`: who had written each block before."""
    told, failure = until_failure(list(events))
    lines = [*_plan(told, homes), *_launch(told, prompts), *_collect(told)]
    if len(lines) > MOST:
        lines = _folded(told)
    return [*lines, Line("collect", "fail", (line(failure),))] if failure else lines


def _of(told: list[ev.Event], kind: type[E]) -> list[E]:
    return [e for e in told if isinstance(e, kind)]


def _by(found: list[E], key: Callable[[E], Any]) -> Iterator[tuple[Any, list[E]]]:
    """Groups by key, in order of first appearance."""
    order = {k: at for at, k in enumerate(dict.fromkeys(key(e) for e in found))}
    for k, group in groupby(sorted(found, key=lambda e: order[key(e)]), key):
        yield k, list(group)


def _blocks(ids: Iterable[int]) -> str:
    ids = list(ids)
    return f"block {ids[0]}" if len(ids) == 1 else "blocks " + "".join(listing([str(b) for b in ids], 8))


def _plan(told: list[ev.Event], homes: dict[int, str]) -> Iterator[Line]:
    for new in _of(told, ev.Engine):
        if new.changed:
            empty = "; the pool starts empty" if new.rebuilt else ""
            yield Line("plan", "step", (f"{' and '.join(new.changed)} changed{empty}",))
    for r in _of(told, ev.Reset):
        yield Line("plan", "evict", (f"the prefix cache is emptied: {count(len(r.blocks), 'block')}",), r.blocks)
    for a in _of(told, ev.Arrive):
        yield Line("plan", "arrive", (Who(a.request), f" arrives with {count(a.prompt_tokens, 'prompt token')}"))
    for p in _of(told, ev.Preempt):
        lost = tuple(e.block for e in _of(told, ev.Release) if e.request == p.request)
        words = (Who(p.request), f" is preempted: {count(p.lost, 'token')} must be computed again")
        yield Line("plan", "preempt", words, lost)
    for who, hits in _by(_of(told, ev.Hit), lambda e: e.request):
        ids = tuple(e.block for e in hits)
        yield Line("plan", "hit", (Who(who), f" hits {_blocks(ids)}: no need to compute them"), ids)
    evicted = {e.block: e for e in _of(told, ev.Evict)}
    for who, taken in _by([e for e in _of(told, ev.Take) if e.block not in evicted], lambda e: e.request):
        ids = tuple(e.block for e in taken)
        free = ", which was free" if len(ids) == 1 else f", {len(ids)} free ones"
        yield Line("plan", "take", (Who(who), f" takes {_blocks(ids)}{free}"), ids)
    for e in evicted.values():
        whose: tuple[str, ...] = (Who(homes[e.block]), "'s") if homes.get(e.block) else ("its",)
        taker: tuple[str, ...] = ("; ", Who(e.request), " takes it") if e.request else ()
        yield Line("plan", "evict", (f"block {e.block} forgets ", *whose, f" hash {e.hash[:4]}", *taker), (e.block,))
    for c in _of(told, ev.Copy):
        words = (Who(c.request), f" copies shared block {c.source} to {c.block}")
        yield Line("plan", "copy", words, (c.source, c.block))
    for s in _of(told, ev.Reserve):
        ids = tuple(range(s.block, s.block + s.blocks))
        yield Line("plan", "take", (Who(s.request), f" reserves blocks {ids[0]} to {ids[-1]}"), ids)
    for m in _of(told, ev.Admit):
        cached = f"; {count(m.cached, 'token')} of it cached" if m.cached else ""
        yield Line("plan", "play", (Who(m.request), f" starts{' again' if m.resumed else ''}{cached}"))
    for w in _of(told, ev.Wait):
        yield Line("plan", "wait", (Who(w.request), f" waits: {why_wait(w)}"))


def _launch(told: list[ev.Event], prompts: dict[str, int]) -> Iterator[Line]:
    runs = _of(told, ev.Run)
    decodes = [e for e in runs if e.decode]
    if decodes:
        who = listing([Who(e.request) for e in decodes])
        each = "computes 1 token" if len(decodes) == 1 else "compute 1 token each"
        yield Line("launch", "decode", (*who, f" {each}"))
    for e in runs:
        if not e.decode:
            prompt = prompts.get(e.request, 0)
            end = e.start + e.count
            kind = "token" if end > prompt else "prompt token"
            which = "all its " if e.start == 0 and end >= prompt else "its last " if end >= prompt else ""
            yield Line("launch", "prefill", (Who(e.request), f" computes {which}{count(e.count, kind)}"))


def _collect(told: list[ev.Event]) -> Iterator[Line]:
    texts = {e.request: e.text for e in _of(told, ev.Text)}
    for t in (t for t in _of(told, ev.Token) if t.first):
        said = f"“{texts[t.request]}”" if t.request in texts else f"id {t.token}"
        yield Line("collect", "token", (Who(t.request), f": first token, {said}"))
    more = [t for t in _of(told, ev.Token) if not t.first and t.request in texts]
    if more:
        said_by: Spans = []
        for t in more[:4]:
            said_by += [", " if said_by else "", Who(t.request), f" “{texts[t.request]}”"]
        yield Line("collect", "decode", (*said_by, f" and {len(more) - 4} more" if len(more) > 4 else ""))
    for who, full in _by(_of(told, ev.Publish), lambda e: e.request):
        ids = tuple(e.block for e in full)
        verb = "is full: hashed" if len(ids) == 1 else "are full: hashed"
        yield Line("collect", "publish", (Who(who), f"'s {_blocks(ids)} {verb}"), ids)
    for child in _of(told, ev.Fork):
        yield Line("collect", "hit", (Who(child.request), " forks from ", Who(child.parent)), child.blocks)
    for f in _of(told, ev.Finish):
        how = " is aborted" if f.reason == "abort" else f" is done after {count(f.tokens, 'token')}"
        yield Line("collect", "finish", (Who(f.request), how))
    for who, gone in _by(_of(told, ev.Release), lambda e: e.request):
        yield Line("collect", "release", (Who(who), f"'s blocks: {_left(gone)}"), tuple(e.block for e in gone))


def _left(gone: list[ev.Release]) -> str:
    shared = sum(e.ref > 0 for e in gone)
    kept = sum(e.ref == 0 and e.cached for e in gone)
    free = len(gone) - shared - kept
    parts = ((shared, "still shared"), (kept, "cached, tail first"), (free, "free"))
    return ", ".join(f"{n} {words}" for n, words in parts if n)


def _folded(told: list[ev.Event]) -> list[Line]:
    """One line per kind: how many, and by whom."""

    def fold(phase: str, kind: str, found: list[Any], words: str, by: str = "") -> Iterator[Line]:
        if found:
            who = listing([Who(w) for w in dict.fromkeys(e.request for e in found)], 4) if by else []
            blocks = tuple(e.block for e in found if hasattr(e, "block"))
            noun = words.replace("(s)", "" if len(found) == 1 else "s")
            yield Line(phase, kind, (f"{len(found):,} {noun}{by}", *who), blocks)

    runs, tokens = _of(told, ev.Run), _of(told, ev.Token)
    prefills = [e for e in runs if not e.decode]
    prompt = sum(e.count for e in prefills)
    return [
        *fold("plan", "arrive", _of(told, ev.Arrive), "request(s) arrived:", " "),
        *fold("plan", "preempt", _of(told, ev.Preempt), "preempted:", " "),
        *fold("plan", "hit", _of(told, ev.Hit), "block hit(s), by", " "),
        *fold("plan", "take", _of(told, ev.Take), "block(s) taken, by", " "),
        *fold("plan", "evict", _of(told, ev.Evict), "cached block(s) evicted"),
        *fold("plan", "wait", _of(told, ev.Wait), "cannot start:", " "),
        *fold("launch", "decode", [e for e in runs if e.decode], "token(s) decoded, one for each request"),
        *fold("launch", "prefill", prefills, f"request(s) compute {prompt:,} prompt tokens:", " "),
        *fold("collect", "token", [t for t in tokens if t.first], "first token(s):", " "),
        *fold("collect", "publish", _of(told, ev.Publish), "full block(s) hashed"),
        *fold("collect", "finish", _of(told, ev.Finish), "finished:", " "),
        *fold("collect", "release", _of(told, ev.Release), "block(s) released"),
    ]

"""What every slot of a pool is doing: holding K and V, promised for later, promised for nothing, or lying in a hole.

The four kinds of the vLLM paper's Figure 2, read from a snapshot alone. (Kwon et al. 2023, §3.1.)
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from minivllm import events as ev
from minivllm.snapshot import RequestView, Snapshot

KINDS = ("used", "later", "never", "hole", "free")


class Piece(NamedTuple):
    """`size` neighbouring slots from slot `at` on, all of one `kind` and of one request (`who`)."""

    kind: str
    at: int
    size: int
    who: str = ""


@dataclass(frozen=True)
class Refusal:
    """A request that could not start: it asks for `need` slots; the largest hole has `hole` and starts at `at`."""

    who: str
    need: int
    prompt: int
    at: int
    hole: int
    free: int


def pieces(snapshot: Snapshot, refused: bool = False) -> list[Piece]:
    """All slots in address order. Free slots count as holes while a request is refused for want of a longer run."""
    contiguous = snapshot.layout != "paged"
    found = list(_extents(snapshot) if contiguous else _blocks(snapshot))
    size, total = snapshot.block_size, snapshot.num_blocks * snapshot.block_size
    empty = "hole" if contiguous and refused else "free"
    out, at = [], 0
    for piece in sorted(found, key=lambda p: p.at):
        out += _gap(at, piece.at, empty, size if not contiguous else total)
        out.append(piece)
        at = piece.at + piece.size
    return out + _gap(at, total, empty, size if not contiguous else total)


def totals(found: Iterable[Piece]) -> dict[str, int]:
    """Slots of each kind."""
    sums = dict.fromkeys(KINDS, 0)
    for piece in found:
        sums[piece.kind] += piece.size
    return sums


def refusal(events: Iterable[ev.Event], snapshot: Snapshot) -> Refusal | None:
    """Who was turned away in this tick for want of memory, and the largest hole as it is at the tick's end."""
    size = snapshot.block_size
    for event in events:
        if isinstance(event, ev.Wait) and event.reason in ("memory", "hole"):
            gaps = [p for p in pieces(snapshot) if p.kind == "free"]
            largest = max(gaps, key=lambda p: p.size, default=Piece("free", 0, 0))
            prompt = snapshot.request(event.request).tokens
            free = sum(p.size for p in gaps)
            return Refusal(event.request, event.need * size, prompt, largest.at, largest.size, free)
    return None


def percents(parts: Iterable[int]) -> list[int]:
    """Whole percentages that add up to 100 (largest remainder)."""
    values = list(parts)
    whole = sum(values)
    if not whole:
        return [0] * len(values)
    floors = [100 * v // whole for v in values]
    by_rest = sorted(range(len(values)), key=lambda i: -(100 * values[i] % whole))
    for i in by_rest[: 100 - sum(floors)]:
        floors[i] += 1
    return floors


def _gap(start: int, end: int, kind: str, step: int) -> list[Piece]:
    """Slots nobody has, block by block in a paged pool, as one piece otherwise."""
    return [Piece(kind, at, min(step, end - at)) for at in range(start, end, step)]


def _extents(snapshot: Snapshot) -> Iterator[Piece]:
    """One extent per running request: what it holds, what it will fill, and the rest of its reservation."""
    size = snapshot.block_size
    for r in snapshot.requests:
        if r.table and r.status == "running":
            yield from _split(r.table[0] * size, max(r.reserved, len(r.table)) * size, r.computed, _final(r), r.id)


def _blocks(snapshot: Snapshot) -> Iterator[Piece]:
    """Block by block; a shared block is drawn once, as its first owner's."""
    size, done = snapshot.block_size, set()
    for r in snapshot.requests:
        for index, block in enumerate(r.table if r.status == "running" else ()):
            if block not in done:
                done.add(block)
                before = index * size
                yield from _split(block * size, size, r.computed - before, _final(r) - before, r.id)


def _split(at: int, length: int, now: int, final: int, who: str) -> Iterator[Piece]:
    """`length` slots from `at`: used up to `now`, needed up to `final`, and the rest for nothing."""
    now = max(0, min(length, now))
    final = max(now, min(length, final))
    for kind, start, end in (("used", 0, now), ("later", now, final), ("never", final, length)):
        if end > start:
            yield Piece(kind, at + start, end - start, who)


def _final(request: RequestView) -> int:
    """Tokens of this request in the end, as far as anyone can know: prompt and all it may generate."""
    return request.prompt_tokens + request.max_tokens

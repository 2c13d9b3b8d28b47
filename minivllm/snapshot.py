"""What an engine looks like between two ticks: an immutable picture, equal whether taken live or replayed."""

from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any


@dataclass(frozen=True)
class BlockView:
    """One physical block. `owners` in admission order; `filled` slots hold K/V that somebody can still use."""

    id: int
    ref: int
    hash: str | None
    owners: tuple[str, ...]
    filled: int

    @property
    def state(self) -> str:
        """`used` (ref > 0), `cached` (ref 0, findable) or `free`."""
        return "used" if self.ref else "cached" if self.hash else "free"


@dataclass(frozen=True)
class RequestView:
    """One request. `computed` positions have K/V in the blocks of `table`; `cached` of them were prefix hits."""

    id: str
    status: str
    prompt_tokens: int
    tokens: int
    computed: int
    cached: int
    max_tokens: int
    table: tuple[int, ...]
    reserved: int
    preemptions: int
    finish_reason: str | None


@dataclass(frozen=True)
class Snapshot:
    """The engine between ticks. `running` in admission order, `waiting` in queue order, `free` next-to-be-taken first
    (empty above 1,024 blocks); `requests` holds every request since the start, finished ones too (the last 64)."""

    tick: int
    block_size: int
    num_blocks: int
    layout: str
    blocks: tuple[BlockView, ...]
    free: tuple[int, ...]
    requests: tuple[RequestView, ...]
    running: tuple[str, ...]
    waiting: tuple[str, ...]

    def request(self, request_id: str) -> RequestView:
        """The view of one request. Raises `KeyError` naming those there are."""
        for view in self.requests:
            if view.id == request_id:
                return view
        raise KeyError(f"no request {request_id!r}; there are {', '.join(r.id for r in self.requests) or 'none'}")

    @property
    def used(self) -> int:
        """Blocks with ref > 0."""
        return sum(1 for b in self.blocks if b.ref)

    @property
    def cached(self) -> int:
        """Blocks with ref 0 that can still be hit."""
        return sum(1 for b in self.blocks if b.state == "cached")

    def to_dict(self) -> dict[str, Any]:
        """A plain dict for JSON."""
        return asdict(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.to_text())

    def to_text(self) -> str:
        """An ASCII picture: `.` free, a letter in use, `S` shared, `c` cached; then one line per request.

        64 blocks a line; of lines in a row that are all free the first stands for all.
        """
        marks = "".join(
            "."
            if b.state == "free"
            else "c"
            if b.state == "cached"
            else "S"
            if b.ref > 1
            else b.owners[0][0]
            if b.owners
            else "?"
            for b in self.blocks
        )
        lines = [
            f"tick {self.tick}: {self.used} of {self.num_blocks} blocks in use, {self.cached} cached, "
            f"block_size {self.block_size}"
        ]
        rows = [(at, marks[at : at + 64]) for at in range(0, len(marks), 64)]
        for free, run in groupby(rows, key=lambda row: not row[1].strip(".")):
            same = list(run)
            (first, row), (last, end) = same[0], same[-1]
            if free and len(same) > 1:
                lines.append(f"  {first:>4} {row} and so on to {last + len(end) - 1}, all free")
            else:
                lines += [f"  {at:>4} {row}" for at, row in same]
        for r in self.requests:
            if r.status != "finished":
                lines.append(f"  {r.id} {r.status}: {r.tokens} tokens, {r.computed} computed, table {list(r.table)}")
        return "\n".join(lines)

"""The plan of one step: everything the runner must know, as immutable rows. Nothing else passes between the two."""

from dataclasses import dataclass, field
from typing import NamedTuple

from minivllm.request import Request, SamplingParams


class Row(NamedTuple):
    """Compute positions start … start+count-1 of a request; sample the next token if `sample`.

    `epoch` tells results of before a preemption from those after it.
    """

    request_id: str
    epoch: int
    start: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants here
    sample: bool


class Join(NamedTuple):
    """A request (re)enters the running set: the runner gets a copy of all it has to know about it.

    `tokens`: known token ids, prompt and generated; `table`: physical blocks; `seed` keys the sampling noise, with the position.
    """

    request_id: str
    tokens: tuple[int, ...]
    prompt_len: int
    table: tuple[int, ...]
    params: SamplingParams
    stop_ids: frozenset[int]
    seed: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One step. Apply in this order: `left`, `joined`, `grown`, `copies`, then compute `rows`.

    `left`: requests whose runner state can go. `joined`: requests that enter. `grown`: table diffs `(request id,
    logical index, physical block)`. `copies`: whole blocks `(source, destination)` to copy, in this order, before
    anything is written. `cohort` changes whenever the rows are not those of the same requests, in the same order, as in
    the last plan.
    """

    tick: int
    rows: tuple[Row, ...]
    left: tuple[str, ...] = ()
    joined: tuple[Join, ...] = ()
    grown: tuple[tuple[str, int, int], ...] = ()
    copies: tuple[tuple[int, int], ...] = ()
    preempted: tuple[str, ...] = ()
    decode_only: bool = False
    cohort: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step."""
        return sum(row.count for row in self.rows)


@dataclass(slots=True)
class Draft:
    """A plan in the making: rows so far, and what is left of the token budget."""

    budget: int
    rows: list[Row] = field(default_factory=list)
    grown: list[tuple[str, int, int]] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)

    def add(self, request: Request, total: int) -> None:
        """Schedule the next positions of a request that has `total` tokens, as many as the budget allows."""
        start = request.num_scheduled
        count = min(total - start, self.budget)
        self.budget -= count
        request.num_scheduled = start + count
        sample = start + count == total
        request.num_pending += sample
        self.rows.append(Row(request.id, request.epoch, start, count, sample))

    def drop(self, request: Request) -> None:
        """Take a request that was just preempted out again."""
        self.preempted.append(request.id)
        self.budget += sum(row.count for row in self.rows if row.request_id == request.id)
        self.rows = [row for row in self.rows if row.request_id != request.id]
        lost = {block for owner, _, block in self.grown if owner == request.id}
        self.copies = [(source, block) for source, block in self.copies if block not in lost]
        self.grown = [entry for entry in self.grown if entry[0] != request.id]

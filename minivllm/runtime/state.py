"""What the device knows of each running request: its tokens, their number, its block table. The host sends differences only.

A request has a seat, one line of each tensor. A sampled token is written behind the others on the device, so the next step
can be launched before the host has read it.
"""

from itertools import accumulate
from struct import pack_into

import numpy as np
import torch
from torch import Tensor

from minivllm.core.plan import Plan, Row
from minivllm.kernels.batch import SamplingTensors, StepBatch
from minivllm.request import SamplingParams
from minivllm.runtime.upload import Uploader


class RequestState:
    """Seats for `seats` requests of at most `max_len` tokens in blocks of `block_size`."""

    def __init__(self, seats: int, max_len: int, block_size: int, device: torch.device) -> None:
        self.block_size, self.max_len, self.device = block_size, max_len, device
        self.upload = Uploader(device)
        width = -(-max_len // block_size)
        sizes = [seats * max_len, seats * width, seats]
        self._memory = torch.zeros(sum(sizes), dtype=torch.int32, device=device)  # one, so that one copy reaches all
        tokens, tables, self.lengths = self._memory.split(sizes)
        self.tokens, self.tables = tokens.view(seats, max_len), tables.view(seats, width)
        self.seat: dict[str, int] = {}
        self.params: dict[str, SamplingParams] = {}
        self.seed: dict[str, int] = {}
        self.prompt_len: dict[str, int] = {}
        self.stop_ids: dict[str, frozenset[int]] = {}

    def apply(self, plan: Plan) -> None:
        """Seat those who join, unseat those who left, and write new tokens and table entries."""
        for name in plan.left:  # told once more after an interrupt, which may have come in here
            for known in (self.seat, self.params, self.seed, self.prompt_len, self.stop_ids):
                known.pop(name, None)
        taken = set(self.seat.values()) if plan.joined else set()
        free = (seat for seat in range(len(self.tokens)) if seat not in taken)
        for join in plan.joined:
            self.seat[join.request_id] = next(free)
            self.params[join.request_id], self.seed[join.request_id] = join.params, join.seed
            self.prompt_len[join.request_id], self.stop_ids[join.request_id] = join.prompt_len, join.stop_ids
        first = {row.request_id: row.start for row in plan.rows} if plan.joined else {}
        joined: list[tuple[int, tuple[int, ...]]] = []
        for join in plan.joined:  # what is cached is not fed, but penalties look back
            start = 0 if join.params.shapes_logits else first.get(join.request_id, 0)
            joined += (
                (self._place(self.tokens, self.seat[join.request_id], start), join.tokens[start:]),
                (self._place(self.tables, self.seat[join.request_id]), join.table),
                (self._place(self.lengths, self.seat[join.request_id]), (len(join.tokens),)),
            )
        self._write(joined)
        self._write([(self._place(self.tables, self.seat[name], index), (block,)) for name, index, block in plan.grown])

    def batch(self, rows: tuple[Row, ...]) -> tuple[Tensor, StepBatch]:
        """Token ids `[T]` int64 and the `StepBatch` of a step, gathered from the state on the device."""
        seats = np.asarray([self.seat[row.request_id] for row in rows], dtype=np.int32)
        starts = np.asarray([row.start for row in rows], dtype=np.int32)
        counts = np.asarray([row.count for row in rows], dtype=np.int32)
        ends = np.cumsum(counts, dtype=np.int32)
        row_of = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
        positions = np.arange(len(row_of), dtype=np.int32) - (ends - counts - starts)[row_of]
        wanted = ends[[i for i, row in enumerate(rows) if row.sample]] - 1
        longest = int((starts + counts).max())
        packed = np.concatenate([seats[row_of], positions, seats, starts + counts, [0], ends, wanted]).astype(np.int32)
        t, r = len(row_of), len(rows)
        sent = self.upload.send(packed).split([t, t, r, r, r + 1, len(wanted)])
        seat_of, position, row_seats, contexts, query_starts, logit_rows = sent
        width = -(-longest // self.block_size)
        seat_index, at = seat_of.long(), position.long()
        block = self.tables[seat_index, at // self.block_size].long()
        return self.tokens[seat_index, at].long(), StepBatch(
            positions=position,
            slots=block * self.block_size + at % self.block_size,
            query_starts=query_starts,
            context_lens=contexts,
            block_tables=self.tables[row_seats.long(), :width],
            max_query_len=int(counts.max()),
            max_context_len=longest,
            logit_rows=logit_rows.long(),
            min_query_len=int(counts.min()),
        )

    def sampling(self, rows: list[Row], vocab_size: int) -> SamplingTensors:
        """The sampling parameters of the rows that sample, as tensors."""
        params = [self.params[row.request_id] for row in rows]
        floats = np.asarray([[p.heat, p.top_p, p.min_p] for p in params], dtype=np.float32)
        longs = np.asarray([[self.seed[row.request_id], row.start + row.count] for row in rows], dtype=np.int64)
        top_k = np.asarray([p.top_k for p in params], dtype=np.int32)
        sent, keys = self.upload.send(floats.T.copy()), self.upload.send(longs.T.copy())
        return SamplingTensors(
            temperature=sent[0],
            top_k=self.upload.send(top_k),
            top_p=sent[1],
            min_p=sent[2],
            seed=keys[0],
            position=keys[1],
            all_greedy=not floats[:, 0].any(),
            plain=is_plain(params),
            vocab_size=vocab_size,
        )

    def append(self, sampled: Tensor, rows: list[Row]) -> None:
        """Write `sampled: [S]` behind the tokens of the rows that sampled."""
        where = np.asarray([[self.seat[row.request_id], row.start + row.count] for row in rows], dtype=np.int32)
        seats, at = self.upload.send(where.T.copy()).long()
        inside = at < self.max_len
        self.tokens[seats, at.clamp(max=self.max_len - 1)] = torch.where(inside, sampled.int(), 0)
        self.lengths[seats] = at.int() + 1

    def _place(self, lines: Tensor, seat: int, column: int = 0) -> int:
        """Where in our memory the number of a seat's line stands."""
        return int(lines.storage_offset()) + seat * lines.stride(0) + column

    def _write(self, writes: list[tuple[int, tuple[int, ...]]]) -> None:
        """Copy numbers to the place beside them and those that follow, all in one go, for a copy each takes much longer.

        Packing is the fastest way from Python's ints to an array.
        """
        if not writes:
            return
        counts = [len(numbers) for _, numbers in writes]
        ends = list(accumulate(counts))
        packed = np.empty((2, ends[-1]), dtype=np.int64)
        for (_, numbers), count, end in zip(writes, counts, ends, strict=True):
            pack_into(f"{count}q", packed[1].data, 8 * (end - count), *numbers)
        shifts = [place - end + count for (place, _), count, end in zip(writes, counts, ends, strict=True)]
        packed[0] = np.arange(ends[-1]) + np.repeat(shifts, counts)
        places, numbers = self.upload.send(packed)
        self._memory[places] = numbers.int()


def is_plain(params: list[SamplingParams]) -> bool:
    """Whether nobody narrows the choice of tokens."""
    return all(p.top_k <= 0 and p.top_p >= 1 and p.min_p <= 0 for p in params)

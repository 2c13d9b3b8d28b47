"""CUDA graphs over whole steps: gather inputs, embed, every layer, sample, append, in one launch.

A small model's step is hundreds of kernels, each shorter than the time the host needs to launch it. A graph is launched as
one. Its shapes are fixed, so there is a graph per bucket, and a step takes the smallest that holds it; the rows left over are
padding that reads and writes nothing. Its addresses are fixed too: whatever changes lives in buffers that are overwritten
in place, never replaced.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from minivllm.core.plan import Row
from minivllm.kernels.batch import SamplingTensors, StepBatch
from minivllm.kernels.step_inputs import append_tokens, step_inputs
from minivllm.model.decoder import Decoder
from minivllm.runtime.state import RequestState

PREFILL_TOKENS = (32, 64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
PREFILL_ROWS = (8, 32, 256)


def decode_sizes(max_num_seqs: int) -> list[int]:
    """Batch sizes with a graph: 1, 2, 4, 8, then every 8th to 64, then every 16th, ending exactly at `max_num_seqs`."""
    steps = [1, 2, 4, *range(8, 64, 8), *range(64, max_num_seqs + 1, 16)]
    return sorted({size for size in steps if size < max_num_seqs} | {max_num_seqs})


def bucket(sizes: list[int] | tuple[int, ...], size: int) -> int | None:
    """The smallest of the ascending `sizes` that is at least `size`; None if all are smaller."""
    return next((s for s in sizes if s >= size), None)


@dataclass(frozen=True)
class Shape:
    """What a graph is captured for: `rows` requests that feed `tokens` tokens in all; decodes when both are equal."""

    rows: int
    tokens: int
    plain: bool = True  # nobody uses top_k, top_p or min_p

    @property
    def decode(self) -> bool:
        """Whether every row feeds exactly one token."""
        return self.rows == self.tokens


Capture = Callable[[Callable[[], None]], Callable[[], None]]
"""Turns a step into a function that repeats it."""


class StepGraph:
    """One captured step. `load` says who takes part, `replay` runs it and returns the sampled tokens `[rows]` int64."""

    def __init__(
        self, shape: Shape, decoder: Decoder, kv: Tensor, state: RequestState, vocab_size: int, capture: Capture
    ) -> None:
        self.shape = shape
        self.cohort = -1  # whose plan is loaded
        self._state = state
        rows, device = shape.rows, state.device
        self._packed = torch.zeros(10 * rows + 1, dtype=torch.int32, device=device)  # one buffer, one copy per change
        seats, starts, samplers, top_k, floats, seeds, query_starts = _split(self._packed, rows)
        temperature, top_p, min_p = floats.view(torch.float32).view(3, rows)
        self._sampled = sampled = torch.zeros(rows, dtype=torch.int64, device=device)
        token_ids = torch.zeros(shape.tokens, dtype=torch.int64, device=device)
        context_lens = torch.zeros(rows, dtype=torch.int32, device=device)
        batch = StepBatch(
            positions=torch.zeros(shape.tokens, dtype=torch.int32, device=device),
            slots=torch.full((shape.tokens,), -1, dtype=torch.int64, device=device),
            query_starts=query_starts,
            context_lens=context_lens,
            block_tables=torch.zeros(rows, state.tables.shape[1], dtype=torch.int32, device=device),
            max_query_len=1 if shape.decode else shape.tokens,
            max_context_len=state.max_len,
            logit_rows=None if shape.decode else torch.arange(rows, device=device),
        )

        def step() -> (
            None
        ):  # knows nothing of self: a cycle would keep the pool alive until the next garbage collection
            step_inputs(
                seats, starts, query_starts, state.tokens, state.lengths, state.tables, state.block_size,
                batch.max_query_len, token_ids, batch.positions, batch.slots, context_lens, batch.block_tables,
            )  # fmt: skip
            if batch.logit_rows is not None:
                batch.logit_rows.copy_(query_starts[1:] - 1)
            logits = decoder.forward(token_ids, batch, kv)
            params = SamplingTensors(
                temperature, top_k, top_p, min_p, seeds.view(torch.int64), context_lens.long(), all_greedy=False,
                plain=shape.plain, vocab_size=vocab_size,
            )  # fmt: skip
            sampled.copy_(decoder.ops.sample(logits, params))
            append_tokens(sampled, samplers, state.tokens, state.lengths)

        self.load((), -1)
        self._step = step  # keeps the buffers alive whose addresses the graph has recorded
        self._replay = capture(step)

    def load(self, rows: tuple[Row, ...], cohort: int) -> None:
        """Tell the graph who takes part: one small copy to the device."""
        self.cohort = cohort
        packed = np.zeros(len(self._packed), dtype=np.int32)
        _fill(packed, self.shape, rows, self._state)
        self._packed.copy_(self._state.upload.stage(packed), non_blocking=True)

    def replay(self) -> Tensor:
        """Run the step; returns the buffer of sampled tokens, which the next replay overwrites."""
        self._replay()
        return self._sampled


def _split(packed: Tensor, rows: int) -> tuple[Tensor, ...]:
    """Views: seats, starts, samplers, top_k, floats (3 each), seeds (8 bytes each, aligned), query_starts (one more)."""
    seeds, seats, starts, samplers, top_k, floats, query_starts = packed.split(
        [2 * rows, rows, rows, rows, rows, 3 * rows, rows + 1]
    )
    return seats, starts, samplers, top_k, floats, seeds, query_starts


def _fill(packed: np.ndarray, shape: Shape, rows: tuple[Row, ...], state: RequestState) -> None:
    r, n = shape.rows, len(rows)
    seeds = packed[: 2 * r].view(np.int64)
    seats, starts, samplers, top_k = packed[2 * r : 6 * r].reshape(4, r)
    temperature, top_p, min_p = packed[6 * r : 9 * r].view(np.float32).reshape(3, r)
    query_starts = packed[9 * r : 10 * r + 1]
    seats[:], starts[:], samplers[:], top_p[:] = -1, -1, -1, 1.0
    names = [row.request_id for row in rows]
    params = [state.params[name] for name in names]
    seats[:n] = [state.seat[name] for name in names]
    samplers[:n] = [state.seat[row.request_id] if row.sample else -1 for row in rows]
    seeds[:n] = [state.seed[name] for name in names]
    temperature[:n], top_p[:n] = [p.heat for p in params], [p.top_p for p in params]
    min_p[:n], top_k[:n] = [p.min_p for p in params], [p.top_k for p in params]
    if shape.decode:
        query_starts[:] = np.arange(r + 1)
        return
    starts[:n] = [row.start for row in rows]
    query_starts[1 : n + 1] = np.cumsum([row.count for row in rows])
    query_starts[n + 1 :] = shape.tokens  # the first padding row takes all tokens left over


def cuda_capture() -> Capture:
    """Records a step as a CUDA graph; all graphs of one such function share a memory pool, as they never run at once."""
    pool = torch.cuda.graph_pool_handle()

    def capture(step: Callable[[], None]) -> Callable[[], None]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            step()  # once as it is, so that every kernel is compiled
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            step()
        return graph.replay

    return capture


class Graphs:
    """All graphs of a runner, by shape."""

    def __init__(
        self, decoder: Decoder, kv: Tensor, state: RequestState, vocab_size: int, max_num_seqs: int, capture: Capture
    ) -> None:
        self._parts = (decoder, kv, state, vocab_size, capture)
        self._sizes = decode_sizes(max_num_seqs)
        self._graphs: dict[Shape, StepGraph] = {}
        for size in reversed(self._sizes):  # largest first: the others fit into its memory
            self._get(Shape(size, size))
        most = bucket(PREFILL_ROWS, max_num_seqs + 1) or PREFILL_ROWS[-1]
        for tokens in reversed(PREFILL_TOKENS):
            for rows in PREFILL_ROWS:
                if rows < tokens and rows <= most:
                    self._get(Shape(rows, tokens))

    def find(self, rows: tuple[Row, ...], decode_only: bool, plain: bool) -> StepGraph | None:
        """The graph for a step, captured now if it is the first of its kind; None if the step is too large for all."""
        if decode_only:
            size = bucket(self._sizes, len(rows))
            return None if size is None else self._get(Shape(size, size, plain))
        tokens = bucket(PREFILL_TOKENS, sum(row.count for row in rows))
        seats = bucket(PREFILL_ROWS, len(rows) + 1)  # one row to spare takes the padding
        if tokens is None or seats is None or seats >= tokens:
            return None
        return self._get(Shape(seats, tokens, plain))

    def _get(self, shape: Shape) -> StepGraph:
        if shape not in self._graphs:
            self._graphs[shape] = StepGraph(shape, *self._parts)
        return self._graphs[shape]

"""Carries plans out with a real model: update the request state, run the decoder, sample, append; on CPU and GPU alike."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from minivllm.config import EngineConfig
from minivllm.core.plan import Plan, Row
from minivllm.kernels.batch import StepBatch
from minivllm.kernels.ops import Ops, get_ops
from minivllm.model.decoder import Decoder
from minivllm.model.weights import LoadedModel
from minivllm.runtime import collector, kv_store
from minivllm.runtime.logits import logprob, reshape
from minivllm.runtime.state import RequestState, is_plain
from minivllm.runtime.ticket import StepResult, TokenLogprob


@dataclass
class Ticket:
    """A launched step. `sampled: [S]` on the host once `event` has passed, for the rows of `plan` that sample."""

    rows: tuple[Row, ...]
    every_row: bool = False  # `sampled` has an entry for the rows that sample nothing too
    sampled: Tensor | None = None
    event: "torch.cuda.Event | None" = None
    logprobs: dict[str, TokenLogprob] = field(default_factory=dict)
    prompt_logprobs: dict[str, dict[int, TokenLogprob]] = field(default_factory=dict)


GRAPH_MEMORY, ROUNDING = 1 << 30, 256 << 20
"""Set aside on a GPU for CUDA graphs, and for the allocator's rounding."""
PROMPT_LOGITS = 64
"""Prompt tokens whose logits are computed at a time, for those who ask for them."""


class ModelRunner:
    """One model, one KV pool, one stream: plans run in the order in which they were launched."""

    def __init__(
        self, model: LoadedModel, config: EngineConfig, max_model_len: int, kernels: "Ops | str | None" = None
    ) -> None:
        self.device = model.weights.embed.device
        self.asynchronous = self.device.type == "cuda"
        self.dtype = kv_store.pool_dtype(config, model.spec, model.weights.embed.dtype, self.device)
        self.vocab_size = model.vocab_size
        self.spec, self.max_model_len, self.max_num_seqs = model.spec, max_model_len, config.max_num_seqs
        self.max_num_batched_tokens = config.max_num_batched_tokens if self.asynchronous else None  # memory is measured
        self.decoder = Decoder(model.spec, model.weights, get_ops(self.device, kernels or config.kernels))
        self.checks_tokens = kernels is not None and not isinstance(kernels, str)  # kernels of the user's own
        self.captures = self.asynchronous and not config.enforce_eager
        self._cohort, self._plain, self._shapes_logits = -1, True, False  # of the last plan's rows
        with self._current():
            self.config, self.budget = config, self._budget(config)
        self.num_blocks = kv_store.count_blocks(config, model.spec, self.dtype, self.budget)
        self.resize(self.num_blocks, config.block_size)
        if self.captures:
            collector.calm()

    @torch.no_grad()
    def resize(self, num_blocks: int, block_size: int) -> None:
        """A new, empty pool; every request's state is dropped, and the graphs over the old pool with it.

        Raises `ValueError`, with the old pool as it was, where the memory measured at the start does not hold so much.
        """
        wanted = replace(self.config, num_blocks=num_blocks, block_size=block_size)
        kv_store.count_blocks(wanted, self.spec, self.dtype, self.budget)
        for name in ("graphs", "kv", "state"):  # the old ones go before the new ones come
            self.__dict__.pop(name, None)
        self.num_blocks, self.block_size = num_blocks, block_size
        with self._current():
            self.kv = kv_store.allocate(self.spec, num_blocks, block_size, self.dtype, self.device)
            self.state = RequestState(self.max_num_seqs, self.max_model_len, block_size, self.device)
            self.graphs: Any = None
            if self.captures:
                from minivllm.runtime.graphs import Graphs, cuda_capture  # needs Triton

                parts = (self.decoder, self.kv, self.state, self.vocab_size, self.max_num_seqs)
                self.graphs = Graphs(*parts, cuda_capture())

    def _current(self) -> torch.cuda.device:
        """Makes our GPU the current one, to which kernels, events and graphs go; on a CPU it does nothing."""
        return torch.cuda.device(self.device if self.asynchronous else -1)

    @torch.no_grad()
    def _budget(self, config: EngineConfig) -> int:
        """Bytes the pool may take: told on a CPU, on a GPU what the weights and a largest step leave of our share.

        Nothing else of this process counts as ours, for there may be another engine.
        """
        if self.device.type != "cuda":
            return config.kv_cache_memory
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        pool = kv_store.allocate(self.spec, 1, config.block_size, self.dtype, self.device)
        tokens = min(config.max_num_batched_tokens, self.max_model_len * config.max_num_seqs)
        seats = min(config.max_num_seqs, tokens)
        self.decoder.forward(*_padding(tokens, seats, self.device), pool)
        step = torch.cuda.max_memory_allocated(self.device) - before
        del pool
        torch.cuda.empty_cache()  # then what the step took is free
        free, total = torch.cuda.mem_get_info(self.device)
        coming = step + ROUNDING + (GRAPH_MEMORY if self.captures else 0)
        own = self.decoder.weights.nbytes + coming
        return kv_store.gpu_budget(total, free - coming, own, config.gpu_memory_utilization)

    @torch.inference_mode()
    def launch(self, plan: Plan) -> Ticket:
        """Start a step. On a GPU nothing here waits for the device, except for requests that ask for log-probabilities,
        penalties or biases."""
        with self._current():
            return self._launch(plan)

    def _launch(self, plan: Plan) -> Ticket:
        state = self.state
        state.upload.next_step()
        state.apply(plan)
        kv_store.copy_blocks(self.kv, plan.copies)
        if not plan.rows:
            return Ticket(())
        rows = plan.rows
        if plan.cohort != self._cohort:
            params = [state.params[row.request_id] for row in rows]
            self._cohort, self._plain = plan.cohort, is_plain(params)
            self._shapes_logits = any(p.shapes_logits for p in params)
        if self.graphs is not None and not self._shapes_logits:
            graph = self.graphs.find(rows, plan.decode_only, self._plain)
            if graph is not None:
                if graph.cohort != plan.cohort or not plan.decode_only:
                    graph.load(rows, plan.cohort)
                ticket = Ticket(rows, every_row=True)
                self._send_back(ticket, graph.replay()[: len(rows)])
                return ticket
        return self._eager(plan)

    def wait(self, ticket: Ticket) -> StepResult:
        """The tokens of a launched step; of no meaning for rows that sample none."""
        if ticket.event is not None:
            ticket.event.synchronize()
        sampled: list[int] = [] if ticket.sampled is None else ticket.sampled.tolist()
        if not ticket.every_row:
            known = iter(sampled)
            sampled = [next(known) if row.sample else -1 for row in ticket.rows]
        if sampled and (self.checks_tokens or max(sampled) >= self.vocab_size):
            for row, token in zip(ticket.rows, sampled, strict=True):
                if row.sample and not 0 <= token < self.vocab_size:
                    raise ValueError(
                        f"the kernels sampled token {token} for {row.request_id}; allowed: 0 to {self.vocab_size - 1} "
                        "(logits that are not numbers lead here too)"
                    )
        return StepResult(sampled, ticket.logprobs, ticket.prompt_logprobs)

    def close(self) -> None:
        """Let go of pool, state and weights, so that their memory returns even while the engine object lives."""
        for name in ("graphs", "kv", "state", "decoder"):
            self.__dict__.pop(name, None)
        if self.captures:
            collector.restore()
        if self.asynchronous:
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()

    def _eager(self, plan: Plan) -> Ticket:
        state, ticket = self.state, Ticket(plan.rows)
        tokens, batch = state.batch(plan.rows)
        wants_prompt = any(state.params[row.request_id].prompt_logprobs is not None for row in plan.rows)
        if wants_prompt:  # logits of every token instead of the last ones
            hidden = self.decoder.hidden(tokens, replace(batch, logit_rows=None), self.kv)
            self._report_prompt(ticket, hidden)
            logits = self.decoder.head(hidden[batch.logit_rows])
        else:
            logits = self.decoder.forward(tokens, batch, self.kv)
        sampling = [row for row in plan.rows if row.sample]
        if sampling:
            shaped = self._shape(logits, sampling)
            sampled = self.decoder.ops.sample(shaped, state.sampling(sampling, self.vocab_size))
            state.append(sampled, sampling)
            self._report(ticket, sampling, logits, sampled)
            self._send_back(ticket, sampled)
        return ticket

    def _shape(self, logits: Tensor, rows: list[Row]) -> Tensor:
        """Logits after penalties and biases; the same tensor when nobody asked for any."""
        state = self.state
        if not any(state.params[row.request_id].shapes_logits for row in rows):
            return logits
        logits = logits.float().clone()
        for index, row in enumerate(rows):
            name = row.request_id
            params = state.params[name]
            if params.shapes_logits:
                history = state.tokens[state.seat[name], : row.start + row.count]
                logits[index] = reshape(logits[index], params, history, state.prompt_len[name], state.stop_ids[name])
        return logits

    def _report(self, ticket: Ticket, rows: list[Row], logits: Tensor, sampled: Tensor) -> None:
        for index, row in enumerate(rows):
            top = self.state.params[row.request_id].logprobs
            if top is not None:
                ticket.logprobs[row.request_id] = logprob(logits[index, : self.vocab_size], int(sampled[index]), top)

    def _report_prompt(self, ticket: Ticket, hidden: Tensor) -> None:
        """Log-probability of each prompt token given those before it; position 0 has none.

        A few tokens at a time: the logits of a whole step would not fit into the memory that was set aside for it.
        """
        state, at = self.state, 0
        for row in ticket.rows:
            top = state.params[row.request_id].prompt_logprobs
            if top is not None:
                known = state.tokens[state.seat[row.request_id]].tolist()
                positions = range(row.start, min(row.start + row.count, state.prompt_len[row.request_id] - 1))
                parts = hidden[at : at + len(positions)].split(PROMPT_LOGITS) if positions else ()
                logits = (line[: self.vocab_size] for part in parts for line in self.decoder.head(part))
                ticket.prompt_logprobs[row.request_id] = {
                    position + 1: logprob(line, known[position + 1], top)
                    for position, line in zip(positions, logits, strict=True)
                }
            at += row.count

    def _send_back(self, ticket: Ticket, sampled: Tensor) -> None:
        if self.asynchronous:
            ticket.sampled = torch.empty(sampled.shape, dtype=sampled.dtype, pin_memory=True)
            ticket.sampled.copy_(sampled, non_blocking=True)
            ticket.event = torch.cuda.Event()
            ticket.event.record()
        else:
            ticket.sampled = sampled


def _padding(tokens: int, rows: int, device: torch.device) -> tuple[Tensor, StepBatch]:
    """A step of the largest size in which nobody takes part: it costs what a real one costs and writes nothing."""

    def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    starts = torch.linspace(0, tokens, rows + 1, device=device).int()
    batch = StepBatch(
        positions=zeros(tokens), slots=zeros(tokens, dtype=torch.int64) - 1, query_starts=starts, context_lens=zeros(rows),
        block_tables=zeros(rows, 1), max_query_len=-(-tokens // rows) + 1, max_context_len=1,
        logit_rows=(starts[1:] - 1).long(),
    )  # fmt: skip
    return zeros(tokens, dtype=torch.int64), batch

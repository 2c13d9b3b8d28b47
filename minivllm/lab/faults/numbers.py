"""Patients whose numbers are wrong: unwritten memory is read, a sum stops growing, a table is out of date."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minivllm import events as ev
from minivllm.config import EngineConfig
from minivllm.core.plan import Plan
from minivllm.engine import Engine
from minivllm.kernels.reference import ReferenceOps, gather, rotate
from minivllm.lab.faults.evidence import where
from minivllm.lab.faults.patient import Patient, Visit
from minivllm.lab.faults.tiny import engine_with_model
from minivllm.lab.tensors import poison
from minivllm.lab.workloads import tokens_of


class _OwnDecode(ReferenceOps):
    """The reference, but decodes are attended to by `decode`, one request at a time."""

    def attention(self, qkv: Tensor, kv_layer: Tensor, *rest: Any) -> Tensor:
        """As the reference; then every row of one token is computed once more, in our own way."""
        out = super().attention(qkv, kv_layer, *rest)
        rope, batch = rest[-2], rest[-1]
        kv_heads, head_dim = kv_layer.shape[-2:]
        q = qkv.unflatten(-1, (-1, head_dim))[:, : -2 * kv_heads]  # [T, Hq, D]
        if rope is not None:
            q = rotate(q, rope.cos_sin[batch.positions].unsqueeze(1))
        starts, contexts = batch.query_starts.tolist(), batch.context_lens.tolist()
        for row, context in enumerate(contexts):
            if starts[row + 1] - starts[row] == 1:
                grouped = q[starts[row]].unflatten(0, (kv_heads, -1))  # [Hkv, G, D]
                out[starts[row]] = self.decode(grouped, kv_layer, batch.block_tables[row], context).flatten()
        return out

    def decode(self, q: Tensor, kv_layer: Tensor, table: Tensor, context: int) -> Tensor:
        """`q: [Hkv, G, D]` over the `context` positions of `table` -> `[Hkv, G, D]`."""
        raise NotImplementedError


class UnmaskedValues(_OwnDecode):
    """Masks the scores of slots past the end, and forgets that 0 × NaN is NaN."""

    def decode(self, q: Tensor, kv_layer: Tensor, table: Tensor, context: int) -> Tensor:
        """Whole blocks are read; the last one's end has weight 0, whatever lies there."""
        size = kv_layer.shape[2]
        whole = torch.arange(-(-context // size) * size)
        k, v = gather(kv_layer, table[None], whole[None])  # [1, Hkv, blocks * size, D]
        scores = (q @ k[0].transpose(1, 2)) * q.shape[-1] ** -0.5
        weights = scores.masked_fill(whole >= context, -torch.inf).softmax(-1)
        return weights @ v[0]


class HalfSum(_OwnDecode):
    """Adds up the softmax in float16: at 2,048 the next number is 2,050, and adding less than 1 changes nothing."""

    def decode(self, q: Tensor, kv_layer: Tensor, table: Tensor, context: int) -> Tensor:
        """One position after another, as a kernel with a float16 accumulator would."""
        k, v = gather(kv_layer, table[None], torch.arange(context)[None])  # [1, Hkv, context, D]
        scores = (q @ k[0].transpose(1, 2)) * q.shape[-1] ** -0.5  # [Hkv, G, context]
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        total = np.cumsum(weights.numpy(), axis=-1, dtype=np.float16)[..., -1:]  # rounds after every addition
        return (weights @ v[0]) / torch.from_numpy(total.astype(np.float32))


UNWRITTEN = 3
"""The block of the pool in which nobody ever wrote."""


class UnmaskedTail(Patient):
    """A block that comes from fresh memory holds NaN past the request's last token, and the kernel lets it through."""

    complaint = "One customer says that the answers are nonsense. All others are content."
    cause = "The kernel masks scores but multiplies V unmasked: weight 0 times an unwritten NaN is NaN."
    cure = "Mask V as well as the scores: load with `other=0.0`."
    treatments = ("mask-values",)
    instrument = "nan"

    def build(self) -> Engine:
        """One block of the pool was never written by anybody."""
        kernels = ReferenceOps() if self.cured else UnmaskedValues()
        engine = engine_with_model(self.model, EngineConfig(block_size=8, num_blocks=24), kernels)
        engine.runner.kv.zero_()  # type: ignore[attr-defined]  # else other blocks would hold what was there before
        poison(engine, [UNWRITTEN])
        return engine

    def visits(self) -> list[Visit]:
        """Three requests; the second gets the bad block."""
        return [Visit(1, tokens_of(((f"user {i}", 11 + i),), 512), 10) for i in range(3)]

    def evidence(self) -> list[int]:
        """Whoever holds the bad block decodes."""
        owners: set[str] = set()

        def shows(event: ev.Event) -> bool:
            if isinstance(event, ev.Take) and event.block == UNWRITTEN:
                owners.add(event.request)
            return isinstance(event, ev.Run) and event.decode and event.request in owners

        return where(self.recorder, shows)


class HalfPrecisionSum(Patient):
    """Short answers are right, long ones drift, and from some length on all is garbage."""

    complaint = "Answers are right in every test. In production some are not, and nobody sees what they have in common."
    cause = "The decode kernel adds up the softmax denominator in float16, where 2,048 + 0.9 is 2,048."
    cure = "Accumulate in float32, whatever the dtype of K and V."
    treatments = ("float32-sum",)
    instrument = "inexact"

    def build(self) -> Engine:
        """A decode kernel with a float16 accumulator."""
        kernels = ReferenceOps() if self.cured else HalfSum()
        return engine_with_model(self.model, EngineConfig(block_size=16, num_blocks=600), kernels)

    def visits(self) -> list[Visit]:
        """A short request and three long ones."""
        long = [Visit(2, tokens_of(((f"long {i}", 2600),), 512), 8) for i in range(3)]
        return [Visit(1, tokens_of((("short", 40),), 512), 8), *long]

    def evidence(self) -> list[int]:
        """Somebody decodes with more than 2,048 tokens of context."""
        return where(self.recorder, lambda event: isinstance(event, ev.Run) and event.decode and event.start >= 2048)


class StaleTable(Patient):
    """The host grows block tables, and the device never hears of it."""

    complaint = "No error and no warning; answers start well and go wrong after a few tokens."
    cause = "Blocks added to a running request are not sent to the device, which goes on with what stood there before."
    cure = "Every change of a table must travel with the plan; compare both sides in a debug build."
    treatments = ("send-table-changes",)
    instrument = "tables"

    def build(self) -> Engine:
        """A device state that applies a plan without its table changes."""
        engine = engine_with_model(self.model, EngineConfig(block_size=4, num_blocks=48))
        state = engine.runner.state  # type: ignore[attr-defined]
        apply = state.apply

        def stale(plan: Plan) -> None:
            apply(replace(plan, grown=()))

        if not self.cured:
            state.apply = stale
        return engine

    def visits(self) -> list[Visit]:
        """Four requests that outgrow their first blocks."""
        return [Visit(1 + i, tokens_of(((f"user {i}", 9 + i),), 512), 12) for i in range(4)]

    def evidence(self) -> list[int]:
        """Somebody takes a block after the first ones, or decodes past the blocks that the device knows."""
        size = self.engine.config.block_size

        def shows(event: ev.Event) -> bool:
            if isinstance(event, ev.Take):
                return event.index >= self._first_blocks(event.request)
            if isinstance(event, ev.Run):
                return event.start >= size * self._first_blocks(event.request)
            return False

        return where(self.recorder, shows)

    def _first_blocks(self, request: str) -> int:
        return -(-len(self.prompts[request]) // self.engine.config.block_size)

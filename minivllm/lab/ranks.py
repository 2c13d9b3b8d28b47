"""Tensor parallelism inside the real engine: every rank computes its own heads and its own part of the sums.

The ranks are slices of this process's tensors. Real are the arithmetic, each rank's own block table, and the two sums
per layer that would travel: the all-reduces. The wire between them is not here. (Shoeybi et al. 2019, Megatron-LM, §3.)
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from minivllm.allowed import whole
from minivllm.core.plan import Plan
from minivllm.engine import Engine
from minivllm.kernels.batch import RopeTable, StepBatch
from minivllm.kernels.reference import ReferenceOps
from minivllm.model.weights import LoadedModel


def kv_heads_per_rank(kv_heads: int, ranks: int) -> int:
    """KV heads of each rank: an equal share, or one, which several ranks then hold a copy of.

    Raises `ValueError` where neither number divides the other: ranks would differ in size.
    """
    kv_heads, ranks = whole("kv_heads", kv_heads, 1), whole("ranks", ranks, 1)
    if kv_heads % ranks and ranks % kv_heads:
        raise ValueError(f"{ranks} ranks cannot share {kv_heads} KV heads: one number must divide the other")
    return max(1, kv_heads // ranks)


@dataclass
class Rank:
    """One rank: the heads it holds, and the block tables as *it* has heard of them: logical block -> physical block."""

    number: int
    q: slice
    kv: slice
    tables: dict[str, dict[int, int]] = field(default_factory=dict)
    rows: tuple[str, ...] = ()  # whose rows the present step has

    def hear(self, plan: Plan) -> None:
        """Bring the tables up to date with a plan, as every rank does for itself."""
        for name in plan.left:
            self.tables.pop(name, None)
        for join in plan.joined:
            self.tables[join.request_id] = dict(enumerate(join.table))
        for name, index, block in plan.grown:
            self.tables.setdefault(name, {})[index] = block
        self.rows = tuple(row.request_id for row in plan.rows)

    def batch(self, shared: StepBatch, block_size: int) -> StepBatch:
        """The step with this rank's own tables and slots; an entry it never heard of is 0, as in fresh memory."""
        if not self.rows:
            raise RuntimeError("this rank has heard of no step; call listen(engine) before the engine's first")
        width = shared.block_tables.shape[1]
        entries = [[self.tables.get(name, {}).get(index, 0) for index in range(width)] for name in self.rows]
        tables = torch.tensor(entries, dtype=torch.int32)  # [R, W]
        row = torch.repeat_interleave(torch.arange(len(entries)), shared.query_starts.diff())  # [T]
        at = shared.positions.long()
        slots = tables[row, at // block_size].long() * block_size + at % block_size
        return replace(shared, block_tables=tables, slots=slots)


class RankedOps(ReferenceOps):
    """The reference operations, computed by `ranks` ranks. CPU only.

    `Engine(config, model=model, kernels=ops)`, then `ops.listen(engine)`. Counts `all_reduces` and `all_reduce_bytes`:
    the size of what is summed, whatever a network makes of it. Raises `ValueError` if heads or the MLP cannot be divided.
    """

    def __init__(self, ranks: int, model: LoadedModel) -> None:
        spec = model.spec
        ranks = whole("ranks", ranks, 1)
        for what, size in (("query heads", spec.num_heads), ("columns of the MLP", spec.intermediate_size)):
            if size % ranks:
                raise ValueError(f"{ranks} ranks cannot share {size} {what}")
        q, kv = spec.num_heads // ranks, kv_heads_per_rank(spec.num_kv_heads, ranks)
        copies = max(1, ranks // spec.num_kv_heads)
        first_kv = [n // copies * kv for n in range(ranks)]
        self.ranks = [Rank(n, slice(n * q, n * q + q), slice(first, first + kv)) for n, first in enumerate(first_kv)]
        self.all_reduces = self.all_reduce_bytes = 0
        self._row_parallel = {id(matrix): matrix for layer in model.weights.layers for matrix in (layer.o, layer.down)}

    def listen(self, engine: Engine) -> None:
        """From now on every plan is broadcast: all ranks hear it before any of them computes."""
        runner: Any = engine.runner
        launch = runner.launch

        def broadcast(plan: Plan) -> Any:
            for rank in self.ranks:
                rank.hear(plan)
            return launch(plan)

        runner.launch = broadcast

    def attention(
        self,
        qkv: Tensor,
        kv_layer: Tensor,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        eps: float,
        rope: RopeTable | None,
        batch: StepBatch,
    ) -> Tensor:
        """Each rank attends with its own heads over its own part of each block; the outputs stand side by side."""
        block_size, kv_heads, head_dim = kv_layer.shape[-3:]
        heads = qkv.unflatten(-1, (-1, head_dim))  # [T, Hq + 2 * Hkv, D]
        q, k, v = heads.split([heads.shape[1] - 2 * kv_heads, kv_heads, kv_heads], dim=1)
        outputs = []
        for rank in self.ranks:
            own_qkv = torch.cat((q[:, rank.q], k[:, rank.kv], v[:, rank.kv]), dim=1).flatten(1)
            pages = kv_layer[..., rank.kv, :]  # [2, num_blocks, block_size, Hkv of the rank, D]
            outputs.append(super().attention(own_qkv, pages, q_norm, k_norm, eps, rope, rank.batch(batch, block_size)))
        return torch.cat(outputs, dim=1)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """After attention and after the MLP, every rank has a part of each sum: one all-reduce adds them up."""
        n = len(self.ranks)
        if n == 1 or id(weight) not in self._row_parallel:
            return super().linear(x, weight, bias)  # outputs side by side: nothing to add
        parts = zip(x.chunk(n, dim=-1), weight.chunk(n, dim=-1), strict=True)
        total = torch.stack([super(RankedOps, self).linear(a, b) for a, b in parts]).sum(0)
        self.all_reduces += 1
        self.all_reduce_bytes += total.nbytes
        return total if bias is None else total + bias  # once, not once per rank

    def disagreements(self) -> list[str]:
        """Every table entry in which a rank differs from rank 0, in words; [] when all have the same."""
        found, none = [], "nothing"
        for rank in self.ranks[1:]:
            for name in sorted(self.ranks[0].tables.keys() | rank.tables.keys()):
                first, own = self.ranks[0].tables.get(name, {}), rank.tables.get(name, {})
                found += [
                    f"{name}, logical block {at}: rank 0 has {first.get(at, none)}, rank {rank.number} {own.get(at, none)}"
                    for at in sorted(first.keys() | own.keys())
                    if first.get(at) != own.get(at)
                ]
        return found

"""Instruments that look at numbers: where a value first stops being finite, or exact; and a pool full of NaN.

A stethoscope stands between one decoder and its operations and touches no other engine.
"""

from typing import Any, cast

import torch
from torch import Tensor

from minivllm.core.plan import Plan
from minivllm.engine import Engine
from minivllm.kernels.reference import ReferenceOps


class Stethoscope:
    """Listens to every attention of an engine with a model, until `remove()`.

    Of each request, in words: `nan`, the first layer whose output is not finite; `inexact`, the first that differs from
    float32 arithmetic over the same pages by more than `tolerance` of the largest value. Every attention is computed twice.
    Raises `ValueError` for an engine that simulates, or that replays CUDA graphs, which nobody can listen to.
    """

    def __init__(self, engine: Engine, tolerance: float = 0.02) -> None:
        self.nan: dict[str, str] = {}
        self.inexact: dict[str, str] = {}
        self.tolerance = tolerance
        self._runner = cast(Any, engine.runner)
        if not hasattr(self._runner, "decoder") or getattr(self._runner, "graphs", None) is not None:
            raise ValueError("a stethoscope needs an engine with a model and enforce_eager=True")
        self._decoder = self._runner.decoder
        self._ops, self._launch = self._decoder.ops, self._runner.launch
        self._rows: list[str] = []
        self._layer = 0
        self._decoder.ops = self
        self._runner.launch = self.launch

    def launch(self, plan: Plan) -> Any:
        """Note who is in the step, then start it."""
        self._rows, self._layer = [row.request_id for row in plan.rows], 0
        return self._launch(plan)

    def attention(self, qkv: Tensor, kv_layer: Tensor, *rest: Any) -> Tensor:
        """`[T, Hq * D]` as the engine computes it; each request's part is looked at."""
        out: Tensor = self._ops.attention(qkv, kv_layer, *rest)
        right = ReferenceOps().attention(qkv.float(), kv_layer.float(), *rest)
        batch = rest[-1]
        starts = batch.query_starts.tolist()
        for row, name in enumerate(self._rows):
            where = f"attention of layer {self._layer}, request {name}, {int(batch.context_lens[row])} tokens"
            mine, theirs = out[starts[row] : starts[row + 1]].float(), right[starts[row] : starts[row + 1]]
            error = float((mine - theirs).abs().max() / theirs.abs().max())
            if not bool(mine.isfinite().all()):
                self.nan.setdefault(name, f"first non-finite value: {where}")
            elif error > self.tolerance:
                self.inexact.setdefault(name, f"first inexact value: {where}, off by {error:.1%}")
        self._layer += 1
        return out

    def remove(self) -> None:
        """Give the engine its own operations back."""
        self._decoder.ops, self._runner.launch = self._ops, self._launch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)


@torch.inference_mode()
def poison(engine: Engine, blocks: list[int] | None = None) -> None:
    """Fill every slot that holds no K/V with NaN, in `blocks` or everywhere, so that whoever reads one shows it.

    Memory that was never written can hold anything; NaN is the anything that cannot be overlooked. Call it between
    ticks.
    """
    pool: Tensor = engine.runner.kv  # type: ignore[attr-defined]
    for view in engine.snapshot().blocks:
        if blocks is None or view.id in blocks:
            pool[:, :, view.id, view.filled :] = torch.nan

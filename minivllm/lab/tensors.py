"""Instruments that look at numbers: the first non-finite value and the first inexact one, and a pool full of NaN.

They stand between one decoder and its operations (`engine.runner.decoder.ops`), and touch no other engine.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from minivllm.engine import Engine
from minivllm.kernels.reference import ReferenceOps


class WatchedOps:
    """Passes every operation on to `ops`, and looks at what comes back.

    `bad`: the first non-finite output, in words. `inexact`: the first attention that differs from a float32 reference by
    more than `tolerance` of the largest value. The reference attends again over the same pages, so this is slow.
    """

    def __init__(self, ops: Any, rows: Callable[[], list[str]], tolerance: float = 0.02) -> None:
        self.ops, self.rows, self.tolerance = ops, rows, tolerance
        self.bad: list[str] = []
        self.inexact: list[str] = []
        self._layer = 0

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self.ops, name)
        if not callable(operation):
            return operation

        def watched(*args: Any, **kwargs: Any) -> Any:
            out = operation(*args, **kwargs)
            values = out[0] if isinstance(out, tuple) else out
            if not self.bad and values.is_floating_point() and not bool(values.isfinite().all()):
                self.bad.append(f"first non-finite value: {name}, after layer {self._layer - 1}")
            return out

        return watched

    def attention(self, qkv: Tensor, kv_layer: Tensor, *rest: Any) -> Tensor:
        """Attention `[T, Hq * D]`, compared row by row."""
        batch = rest[-1]
        layer = self._layer % self.layers if (self.layers := getattr(self, "layers", 1)) else 0
        out: Tensor = self.ops.attention(qkv, kv_layer, *rest)
        right = ReferenceOps().attention(qkv.float(), kv_layer.float(), *rest)
        starts = batch.query_starts.tolist()
        for row, name in enumerate(self.rows()):
            mine, theirs = out[starts[row] : starts[row + 1]].float(), right[starts[row] : starts[row + 1]]
            if not self.bad and not bool(mine.isfinite().all()):
                self.bad.append(f"first non-finite value: attention of layer {layer}, request {name}")
            error = float((mine - theirs).abs().max() / theirs.abs().max().clamp_min(1e-6))
            if not self.inexact and error > self.tolerance:
                length = int(batch.context_lens[row])
                self.inexact.append(f"attention of layer {layer}, request {name}: off by {error:.1%} at {length} tokens")
        self._layer += 1
        return out

"""Paged decode attention with nothing added: one program per request and query head, one page per turn of the loop.

The kernel of the course. The engine's own (`kernels/paged_decode.py`) is the same loop; it reads a page once for all
query heads that share it, cuts long contexts into pieces, and writes the new token on the way. Source: Kwon et al.
2023, section 4.3; Milakov & Gimelshein 2018 (online softmax).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
import hashlib
import importlib.util
import inspect
import sys
import tempfile
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from minivllm.kernels import launch  # first: it decides whether Triton interprets

import triton  # isort: skip
import triton.language as tl  # isort: skip

__all__ = ["Call", "attend", "call", "module_of", "paged", "source_of", "variant"]


@triton.jit
def paged(q, K, V, out, tables, lens, W, G, H, D: tl.constexpr, B: tl.constexpr):
    """One program: request `row`, query head `head`."""
    row, head, slot, d = tl.program_id(0), tl.program_id(1), tl.arange(0, B), tl.arange(0, D)
    n, mine = tl.load(lens + row), (row * H * G + head) * D + d
    query = tl.load(q + mine).to(tl.float32) * D**-0.5
    m, l, acc = float("-inf"), 0.0, tl.zeros([D], tl.float32)
    for j in range(tl.cdiv(n, B)):
        b = tl.load(tables + row * W + j).to(tl.int64)
        valid = j * B + slot < n
        at = ((b * B + slot) * H + head // G)[:, None] * D + d
        k = tl.load(K + at, mask=valid[:, None], other=0.0)
        s = tl.where(valid, tl.sum(k * query, axis=1), float("-inf"))
        m2 = tl.maximum(m, tl.max(s, axis=0))
        a = tl.exp(m - m2)
        p = tl.exp(s - m2)
        l = a * l + tl.sum(p, axis=0)
        v = tl.load(V + at, mask=valid[:, None], other=0.0)
        acc = a * acc + tl.sum(p[:, None] * v, axis=0)
        m = m2
    tl.store(out + mine, acc / l)


class Call(NamedTuple):
    """What one launch of such a kernel needs: the tensors by parameter name, the numbers, and the result's tensor."""

    grid: tuple[int, int]
    tensors: dict[str, Tensor]
    numbers: dict[str, int]
    out: Tensor

    def run(self, kernel: Any) -> Tensor:
        """Launch it: compiled on a GPU, interpreted on a CPU, where infinities raise no warnings, as on a GPU."""
        with np.errstate(all="ignore"):
            kernel[self.grid](**self.tensors, **self.numbers)
        return self.out


def call(q: Tensor, kv_layer: Tensor, block_tables: Tensor, context_lens: Tensor) -> Call:
    """The launch for one new token per request.

    `q: [R, Hq, D]`; `kv_layer: [2, num_blocks, B, Hkv, D]`; `block_tables: [R, W]` and `context_lens: [R]` int32; the
    result is `[R, Hq, D]`. D and B must be powers of two, as `tl.arange` wants; otherwise `ValueError`.
    """
    (rows, q_heads, head_dim), (block_size, kv_heads) = q.shape, kv_layer.shape[2:4]
    for name, size in (("head_dim", head_dim), ("block_size", block_size)):
        if size != launch.next_power_of_2(size):
            raise ValueError(f"{name} is {size}; this kernel allows powers of two")
    q, out = q.contiguous(), torch.empty_like(q, memory_format=torch.contiguous_format)
    tensors = {"q": q, "K": kv_layer[0], "V": kv_layer[1], "out": out, "tables": block_tables, "lens": context_lens}
    width, group = block_tables.stride(0), q_heads // kv_heads
    numbers = {"W": width, "G": group, "H": kv_heads, "D": head_dim, "B": block_size}
    return Call((rows, q_heads), tensors, numbers, out)


def attend(kernel: Any, q: Tensor, kv_layer: Tensor, block_tables: Tensor, context_lens: Tensor) -> Tensor:
    """Run `kernel` (`paged`, or one with its parameters) for one new token per request; shapes as in `call`."""
    return call(q, kv_layer, block_tables, context_lens).run(kernel)


def source_of(kernel: Any) -> str:
    """The source of a Triton kernel, decorator included."""
    return textwrap.dedent(inspect.getsource(kernel.fn))


def variant(kernel: Any, before: str, after: str) -> Any:
    """`kernel` with one piece of its source exchanged: the way this course breaks a kernel on purpose.

    Raises `ValueError` unless `before` stands in the source exactly once.
    """
    source = source_of(kernel)
    if source.count(before) != 1:
        raise ValueError(f"the kernel's source holds {before!r} {source.count(before)} times; allowed: once")
    return getattr(module_of(source.replace(before, after)), kernel.fn.__name__)


def module_of(source: str) -> ModuleType:
    """A kernel's source as a module: Triton reads kernels from files, so it is written to one."""
    text = f"import triton\nimport triton.language as tl\n\n\n{source}"
    name = "kernel_" + hashlib.sha256(text.encode()).hexdigest()[:12]
    if name not in sys.modules:
        path = Path(tempfile.mkdtemp(prefix="minivllm-")) / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]

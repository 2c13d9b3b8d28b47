"""How long a kernel takes, and how long reading its bytes alone would take.

A region is captured in a CUDA graph, so that the host's launches do not count, and replayed; the median is what
counts. Inputs rotate over more memory than the L2 cache holds, and are random: multiplying zeros is faster. The clock
starts after a pause: an H200 that has just been given new memory is up to a fifth slower for some 30 ms. It does not
run for long: after some 30 ms of matrix products, which draw the most power, the same card is a seventh slower.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from minivllm.kernels.batch import StepBatch


def microseconds(region: Callable[[], object], repeats: int = 9) -> float:
    """Median GPU time of one replay of `region`."""
    for _ in range(2):  # compile, and allocate what is allocated once
        region()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        region()
    time.sleep(0.05)
    graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1000)
    return statistics.median(times)


def each(operands: Tensor, region: Callable[[Tensor], object]) -> float:
    """Microseconds for one of `operands` (layers, say): 28 calls or a millisecond of them in one graph."""
    once = microseconds(lambda: [region(operand) for operand in operands], repeats=1)
    rounds = max(1, min(28 // len(operands), int(1000 / once)))
    calls = [operand for _ in range(rounds) for operand in operands]
    return microseconds(lambda: [region(operand) for operand in calls]) / len(calls)


@triton.jit
def read_kernel(
    pool, out, tables, context_lens, table_stride, value_offset,
    ROW: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr, TOKENS: tl.constexpr, STEP: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """One program: read WIDTH of the ROW elements of TOKENS tokens' keys and values of one request, STEP at a time."""
    part, chunk, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    context = tl.load(context_lens + row)
    begin = chunk * TOKENS
    if begin >= context:
        return
    lane, column = tl.arange(0, STEP), part * WIDTH + tl.arange(0, WIDTH)[None, :]
    table = tables + row.to(tl.int64) * table_stride
    total = tl.zeros([STEP, WIDTH], tl.float32)
    at = tl.minimum(begin + lane, context - 1)
    page = tl.load(table + at // PAGE)
    for start in tl.range(begin, tl.minimum(begin + TOKENS, context), STEP, num_stages=STAGES):
        offset = (page.to(tl.int64) * PAGE + at % PAGE) * ROW
        total += tl.load(pool + offset[:, None] + column).to(tl.float32)
        total += tl.load(pool + value_offset + offset[:, None] + column).to(tl.float32)
        at = tl.minimum(start + STEP + lane, context - 1)
        page = tl.load(table + at // PAGE)
    target = out + (row * tl.num_programs(1) + chunk) * tl.num_programs(0) + part
    tl.store(target, tl.sum(tl.sum(total, axis=1), axis=0))


class ReadForm(NamedTuple):
    """How a read-only kernel cuts its work: heads and tokens of a program, tokens at a time, stages, warps."""

    heads: int
    tokens: int
    step: int
    stages: int
    warps: int


READ_FORMS = tuple(
    ReadForm(*form) for form in ((8, 16, 16, 1, 8), (8, 64, 8, 1, 4), (1, 512, 32, 3, 2), (2, 256, 16, 3, 4))
)


def read_only(kv_layer: Tensor, batch: StepBatch, form: ReadForm) -> Tensor:
    """Read every page of the batch through its block table and do nothing: the ceiling for decode attention."""
    kv_heads, head_dim = kv_layer.shape[3:]
    grid = (kv_heads // form.heads, triton.cdiv(batch.max_context_len, form.tokens), len(batch.context_lens))
    out = torch.empty(grid[0] * grid[1] * grid[2], device=kv_layer.device)
    read_kernel[grid](
        kv_layer, out, batch.block_tables, batch.context_lens, batch.block_tables.stride(0), kv_layer.stride(0),
        ROW=kv_heads * head_dim, WIDTH=form.heads * head_dim, PAGE=kv_layer.shape[2],
        TOKENS=form.tokens, STEP=form.step, STAGES=form.stages, num_warps=form.warps,
    )  # fmt: skip
    return out

"""How long a kernel takes, and how long reading its bytes alone would take.

A region is captured in a CUDA graph, so that the host's launches do not count, and replayed; the median is what counts. Inputs
rotate over more memory than the L2 cache holds, and are random: multiplying zeros is faster.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

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
    graph.replay()
    times = []
    for _ in range(repeats):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1000)
    return statistics.median(times)


@triton.jit
def read_kernel(
    pool, out, tables, context_lens, table_stride, value_offset,
    ROW: tl.constexpr, PAGE: tl.constexpr, TOKENS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """One program: read TOKENS tokens' keys and values (ROW elements each) of one request, STEP at a time."""
    chunk, row = tl.program_id(0), tl.program_id(1)
    context = tl.load(context_lens + row)
    begin = chunk * TOKENS
    if begin >= context:
        return
    lane, column = tl.arange(0, STEP), tl.arange(0, ROW)[None, :]
    table = tables + row.to(tl.int64) * table_stride
    total = tl.zeros([STEP, ROW], tl.float32)
    for start in range(begin, tl.minimum(begin + TOKENS, context), STEP):
        at = tl.minimum(start + lane, context - 1)
        offset = (tl.load(table + at // PAGE).to(tl.int64) * PAGE + at % PAGE) * ROW
        total += tl.load(pool + offset[:, None] + column).to(tl.float32)
        total += tl.load(pool + value_offset + offset[:, None] + column).to(tl.float32)
    tl.store(out + row * tl.num_programs(0) + chunk, tl.sum(tl.sum(total, axis=1), axis=0))


def read_only(kv_layer: Tensor, batch: StepBatch, tokens: int, step: int, warps: int) -> Tensor:
    """Read every page of the batch through its block table and do nothing: the ceiling for decode attention."""
    chunks = triton.cdiv(batch.max_context_len, tokens)
    out = torch.empty(len(batch.context_lens), chunks, device=kv_layer.device)
    row = kv_layer.shape[3] * kv_layer.shape[4]
    read_kernel[(chunks, len(batch.context_lens))](
        kv_layer, out, batch.block_tables, batch.context_lens, batch.block_tables.stride(0), kv_layer.stride(0),
        ROW=row, PAGE=kv_layer.shape[2], TOKENS=tokens, STEP=step, num_warps=warps,
    )  # fmt: skip
    return out

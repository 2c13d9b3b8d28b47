"""Check every kernel against float64, then time it beside its ceiling: `python -m minivllm.bench.kernels`.

Shapes are those of Qwen3-0.6B (16 query and 8 key heads of 128, hidden 1024, intermediate 3072, vocabulary 151,936),
random bfloat16 weights. The decode batches are those of nano-vllm's benchmark: 256 requests of 100-1024 tokens in and
out.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from minivllm.bench import correctness, timing
from minivllm.bench.where import where
from minivllm.kernels.activation import silu_mul
from minivllm.kernels.batch import RopeTable, SamplingTensors, StepBatch
from minivllm.kernels.paged_prefill import paged_prefill, plan_prefill
from minivllm.kernels.step_inputs import append_tokens, step_inputs
from minivllm.kernels.triton_ops import TritonOps

Q_HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER, LAYERS, VOCAB, EPS = 16, 8, 128, 1024, 3072, 28, 151_936, 1e-6
HEADS = Q_HEADS + 2 * KV_HEADS
TOKEN_BYTES = 2 * KV_HEADS * HEAD_DIM * 2  # keys and values of one token in one layer
READ_RATE = 4.4e12  # bytes per second, for ceilings that are not measured
FA3 = {  # (sequences, cached prefix, new tokens): microseconds of FlashAttention-3 on an H200, pages of 16
    (1, 0, 512): 16.5, (1, 0, 1024): 23, (1, 0, 4096): 123, (8, 0, 1024): 99, (16, 0, 1024): 179, (1, 0, 16384): 1726,
    (1, 1500, 128): 23, (1, 1500, 512): 36, (1, 4096, 128): 29, (1, 8192, 128): 33, (8, 1500, 128): 38, (8, 1500, 512): 131,
    (8, 4096, 128): 70, (8, 8192, 128): 129, (64, 1500, 128): 241, (64, 4096, 128): 607, (64, 8192, 128): 1136,
    (1, 1500, 32): None, (16, 1500, 30): None,
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One measurement; `ceiling`: microseconds of a read-only kernel, of cuBLAS or of FlashAttention-3."""

    kernel: str
    case: str
    microseconds: float
    ceiling: float | None = None
    rate: str = ""

    def __str__(self) -> str:
        beside = "" if self.ceiling is None else f"{self.ceiling:9.1f} {self.ceiling / self.microseconds:5.2f}"
        return f"{self.kernel:14} {self.case:40} {self.microseconds:9.2f} {beside:15} {self.rate}"


def noise(*shape: int, scale: float = 1.0) -> Tensor:
    """Normal bfloat16 numbers on the GPU."""
    return torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(std=scale)


def rope_table(length: int) -> RopeTable:
    """Cosines and sines for `length` positions, base 1e6."""
    half = HEAD_DIM // 2
    angle = torch.arange(length, device="cuda")[:, None] * 1e6 ** -(torch.arange(half, device="cuda") / half)
    return RopeTable(torch.cat((angle.cos(), angle.sin()), dim=-1).float())


def cuda_step(rows: Sequence[tuple[int, int]], block_size: int, layers: int) -> tuple[Tensor, StepBatch, Tensor]:
    """A step of (context, fed) rows -> pool `[layers, 2, blocks, block_size, Hkv, D]`, batch, qkv; shuffled pages."""
    needed = torch.tensor([-(-context // block_size) for context, _ in rows])
    width, total = int(needed.max()), int(needed.sum())
    tables = torch.zeros(len(rows), width, dtype=torch.int64)
    tables[torch.arange(width) < needed[:, None]] = torch.randperm(total)
    fed = torch.tensor([count for _, count in rows])
    contexts = torch.tensor([context for context, _ in rows])
    starts = torch.cat((torch.zeros(1, dtype=torch.int64), fed.cumsum(0)))
    owner = torch.repeat_interleave(torch.arange(len(rows)), fed)
    positions = contexts[owner] - fed[owner] + torch.arange(int(starts[-1])) - starts[owner]
    slots = tables[owner, positions // block_size] * block_size + positions % block_size
    batch = StepBatch(
        positions.int().cuda(), slots.cuda(), starts.int().cuda(), contexts.int().cuda(), tables.int().cuda(),
        int(fed.max()), int(contexts.max()), (starts[1:] - 1).cuda(), int(fed.min()),
    )  # fmt: skip
    return noise(layers, 2, total, block_size, KV_HEADS, HEAD_DIM), batch, noise(int(starts[-1]), HEADS * HEAD_DIM)


def snapshot(step: int) -> list[int]:
    """Context lengths of the requests of nano-vllm's benchmark that are alive at decode step `step`."""
    rng = random.Random(0)
    prompts = []
    for _ in range(256):
        prompts.append(rng.randint(100, 1024))
        for _ in range(prompts[-1]):
            rng.randint(0, 10000)
    outputs = [rng.randint(100, 1024) for _ in range(256)]
    return [prompt + step for prompt, output in zip(prompts, outputs, strict=True) if output > step]


def decode() -> Iterator[Line]:
    """The six snapshots, and uniform batches."""
    cases = {f"step {step}": snapshot(step) for step in (1, 100, 300, 500, 700, 900)}
    for rows, context in ((1, 640), (1, 8192), (16, 640), (64, 640), (256, 640)):
        cases[f"{rows} x {context}"] = [context] * rows
    for block_size in (16, 256):
        for name, contexts in cases.items():
            yield decode_line(name, contexts, block_size)


def decode_line(name: str, contexts: list[int], block_size: int) -> Line:
    """Attention with norm, rotation and store, beside the fastest kernel that only reads the same pages."""
    ops, weight, rope = TritonOps(), noise(HEAD_DIM), rope_table(16384)
    pool, batch, qkv = cuda_step([(context, 1) for context in contexts], block_size, LAYERS)
    ours = timing.each(pool, lambda kv: ops.attention(qkv, kv, weight, weight, EPS, rope, batch))
    read = min(timing.each(pool, partial(timing.read_only, batch=batch, form=form)) for form in timing.READ_FORMS)
    rate = f"{sum(contexts) * TOKEN_BYTES / ours / 1e3:.0f} GB/s"
    return Line(f"decode b{block_size}", f"{name} ({len(contexts)} rows)", ours, read, rate)


def prefill() -> Iterator[Line]:
    """Fresh prompts, and prompts with a cached prefix."""
    for block_size in (16, 256):
        for (rows, cached, fed), fa3 in FA3.items():
            yield prefill_line(rows, cached, fed, block_size, fa3)


def prefill_line(rows: int, cached: int, fed: int, block_size: int, fa3: float | None) -> Line:
    """Attention alone, beside FlashAttention-3; the case names the time with norm, rotation and store."""
    ops, weight, rope = TritonOps(), noise(HEAD_DIM), rope_table(16384)
    pool, batch, qkv = cuda_step([(cached + fed, fed)] * rows, block_size, 2)
    both = timing.each(pool, lambda kv: ops.attention(qkv, kv, weight, weight, EPS, rope, batch))
    turned, out = noise(len(qkv), HEADS, HEAD_DIM), noise(len(qkv), Q_HEADS * HEAD_DIM)
    plan = plan_prefill(batch, len(qkv), Q_HEADS, pool[0])
    ours = timing.each(pool, lambda kv: paged_prefill(turned, kv, batch, plan, out))
    work = 4 * Q_HEADS * HEAD_DIM * rows * fed * (cached + (fed + 1) / 2)
    case = f"{rows} x ({cached} + {fed}), with store {both:.1f}"
    return Line(f"prefill b{block_size}", case, ours, fa3, f"{work / ours / 1e6:.0f} TFLOP/s")


def products() -> Iterator[Line]:
    """The four products of a layer over the weights of 28 layers, and the head, beside cuBLAS (which does not gate)."""
    ops = TritonOps()
    shapes = {"qkv": (HEADS * HEAD_DIM, HIDDEN), "o": (HIDDEN, Q_HEADS * HEAD_DIM), "gate_up": (2 * INNER, HIDDEN)}
    shapes |= {"down": (HIDDEN, INNER), "head": (VOCAB, HIDDEN)}
    for name, (outputs, inner) in shapes.items():
        weights = noise(2 if name == "head" else LAYERS, outputs, inner, scale=0.02)
        product = ops.linear_silu_mul if name == "gate_up" else ops.linear
        for rows in (1, 4, 16, 32, 64, 128, 256):
            yield product_line(f"{name}, {rows} rows", product, noise(rows, inner), weights)


def product_line(case: str, product: Callable[[Tensor, Tensor], Tensor], x: Tensor, weights: Tensor) -> Line:
    """`weights: [layers, outputs, inner]`."""
    ours = timing.each(weights, lambda weight: product(x, weight))
    cublas = timing.each(weights, lambda weight: F.linear(x, weight))
    return Line("linear", case, ours, cublas, f"{weights[0].nbytes / ours / 1e3:.0f} GB/s")


def small() -> Iterator[Line]:
    """Norm, activation and sampling, beside the time of their bytes."""
    ops, weight = TritonOps(), noise(HIDDEN)
    for rows in (1, 16, 64, 256, 16384):
        x, gate_up = noise(8, rows, HIDDEN), noise(8, rows, 2 * INNER)
        ours = timing.each(x, lambda x: ops.add_rms_norm(x, x, weight, EPS))
        yield Line("add + norm", f"{rows} rows", ours, x[0].nbytes * 4 / READ_RATE * 1e6)
        ours = timing.each(gate_up, silu_mul)
        yield Line("silu * up", f"{rows} rows", ours, gate_up[0].nbytes * 1.5 / READ_RATE * 1e6)
    for rows in (1, 16, 64, 256):
        drawn, logits = sampling(rows), noise(4, rows, VOCAB, scale=2.0)
        filtered = replace(drawn, top_k=drawn.top_k + 50, top_p=drawn.top_p * 0.9, plain=False)
        kinds = {"drawn": drawn, "greedy": SamplingTensors.greedy(rows, "cuda"), "top-k 50, top-p 0.9": filtered}
        for kind, params in kinds.items():
            for values in (logits, logits.float()):
                ours = timing.each(values, partial(ops.sample, params=params))
                yield Line("sample", f"{rows} rows, {kind}, {values.dtype}", ours, values[0].nbytes / READ_RATE * 1e6)


def sampling(rows: int) -> SamplingTensors:
    """Temperature 0.6, as in the benchmark."""
    plain = replace(SamplingTensors.greedy(rows, "cuda"), all_greedy=False)
    where = torch.arange(rows, device="cuda")
    return replace(plain, temperature=plain.top_p * 0.6, seed=where * 7 + 1, position=where + 640)


class RandomModel:
    """Qwen3-0.6B's decode step on random weights: embedding to sampling, and the update of the requests' state."""

    def __init__(self) -> None:
        self.embed = noise(VOCAB, HIDDEN, scale=0.02)
        self.qkv, self.o = noise(LAYERS, HEADS * HEAD_DIM, HIDDEN, scale=0.03), noise(LAYERS, HIDDEN, 2048, scale=0.02)
        self.gate_up, self.down = noise(LAYERS, 2 * INNER, HIDDEN, scale=0.03), noise(LAYERS, HIDDEN, INNER, scale=0.02)
        self.norm, self.head_norm, self.rope = noise(HIDDEN), noise(HEAD_DIM), rope_table(4096)
        self.ops = TritonOps()

    def step(self, rows: int, context: int, block_size: int = 16) -> Callable[[], None]:
        """A function that decodes one token for `rows` requests of `context` tokens."""
        ops, norm, head_norm = self.ops, self.norm, self.head_norm
        pool, batch, _ = cuda_step([(context, 1)] * rows, block_size, LAYERS)
        ids = torch.zeros(rows, dtype=torch.int64, device="cuda")
        tokens = torch.randint(0, VOCAB, (rows, 4096), dtype=torch.int32, device="cuda")
        lengths = torch.full((rows,), context, dtype=torch.int32, device="cuda")
        seats, newest = torch.arange(rows, dtype=torch.int32, device="cuda"), torch.full_like(lengths, -1)
        before, tables, params = lengths.clone(), batch.block_tables.clone(), sampling(rows)

        def run() -> None:
            step_inputs(
                seats, newest, batch.query_starts, tokens, lengths, tables, block_size, 1,
                ids, batch.positions, batch.slots, batch.context_lens, batch.block_tables,
            )  # fmt: skip
            residual = F.embedding(ids, self.embed)
            x = ops.rms_norm(residual, norm, EPS)
            for qkv, o, gate_up, down, kv in zip(self.qkv, self.o, self.gate_up, self.down, pool, strict=True):
                x = ops.attention(ops.linear(x, qkv), kv, head_norm, head_norm, EPS, self.rope, batch)
                x, residual = ops.add_rms_norm(ops.linear(x, o), residual, norm, EPS)
                x = ops.linear(ops.linear_silu_mul(x, gate_up), down)
                x, residual = ops.add_rms_norm(x, residual, norm, EPS)
            append_tokens(ops.sample(ops.linear(x, self.embed), params), seats, tokens, lengths)
            lengths.copy_(before)  # every replay sees the same context

        return run


def step() -> Iterator[Line]:
    """A whole decode step in one graph, context 640, beside the time of its weights and pages."""
    model = RandomModel()
    for rows in (1, 4, 16, 32, 64, 128, 256):
        bytes_read = 1.192e9 + rows * 640 * TOKEN_BYTES * LAYERS
        yield Line("step", f"{rows} x 640", timing.microseconds(model.step(rows, 640)), bytes_read / READ_RATE * 1e6)


SECTIONS: dict[str, Callable[[], Iterator[Line]]] = {
    "decode": decode, "prefill": prefill, "linear": products, "small": small, "step": step,
}  # fmt: skip
ALL = ("check", *SECTIONS)


def report(sections: Sequence[str]) -> list[dict[str, object]]:
    """Run `sections` ("check" first) and print every line as it comes; a check that failed ends with "WRONG".

    Raises `ValueError` for a section that is none, and without a GPU.
    """
    if unknown := set(sections) - set(ALL):
        raise ValueError(f"no section {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    if not torch.cuda.is_available():
        raise ValueError("the kernels are measured on a CUDA GPU, and torch sees none")
    torch.manual_seed(0)
    rows: list[dict[str, object]] = []
    for check in correctness.checks() if "check" in sections else ():
        print(check, flush=True)
        rows.append({"check": check})
    for name, section in SECTIONS.items():
        for line in section() if name in sections else ():
            print(line, flush=True)
            rows.append(asdict(line))
    return rows


def wrong(rows: Sequence[dict[str, object]]) -> int:
    """How many of the checks among `rows` failed."""
    return sum("check" in row and not str(row["check"]).endswith("ok") for row in rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 1 if any kernel is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(ALL), help="comma-separated sections")
    parser.add_argument("--json", type=Path, help="write all lines there")
    args = parser.parse_args(argv)
    try:
        rows = report(args.only.split(","))
    except ValueError as error:
        parser.error(str(error))
    if args.json:
        args.json.write_text(json.dumps({"where": where(), "rows": rows}, indent=1), encoding="utf-8")
    print(f"{wrong(rows) or 'no'} checks failed")
    return int(wrong(rows) > 0)


if __name__ == "__main__":
    raise SystemExit(main())

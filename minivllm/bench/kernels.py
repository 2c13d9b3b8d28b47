"""Check every kernel against float64, then time it beside its ceiling: `python -m minivllm.bench.kernels [--json FILE]`.

Shapes are those of Qwen3-0.6B (16 query and 8 key heads of 128, hidden 1024, intermediate 3072, vocabulary 151,936), random
bfloat16 weights. The decode batches are those of nano-vllm's benchmark: 256 requests of 100-1024 tokens in and out.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from minivllm.bench import oracle, timing
from minivllm.kernels.activation import silu_mul
from minivllm.kernels.batch import RopeTable, SamplingTensors, StepBatch
from minivllm.kernels.step_inputs import append_tokens, step_inputs
from minivllm.kernels.triton_ops import TritonOps

Q_HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER, LAYERS, VOCAB, EPS = 16, 8, 128, 1024, 3072, 28, 151_936, 1e-6
TOKEN_BYTES = 2 * KV_HEADS * HEAD_DIM * 2  # keys and values of one token in one layer
FA3 = {  # microseconds of FlashAttention-3 on an H200, page 16: (sequences, cached prefix, new tokens)
    (1, 0, 1024): 23, (1, 0, 4096): 123, (8, 0, 1024): 99, (16, 0, 1024): 179, (1, 0, 16384): 1726,
    (1, 1500, 128): 23, (1, 1500, 512): 36, (1, 4096, 128): 29, (8, 1500, 128): 38, (8, 1500, 512): 131,
    (8, 4096, 128): 70, (64, 1500, 128): 241, (64, 4096, 128): 607, (1, 1500, 32): None, (16, 1500, 30): None,
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One measurement."""

    kernel: str
    case: str
    microseconds: float
    ceiling: float | None = None  # microseconds of the best that could be: a read-only kernel, cuBLAS, FlashAttention-3
    rate: str = ""


def cuda_step(rows: Sequence[tuple[int, int]], block_size: int, layers: int, seed: int = 0) -> tuple[Tensor, StepBatch, Tensor]:
    """A step of (context, fed) rows on the GPU -> pool `[layers, 2, blocks, block_size, Hkv, D]`, batch, qkv."""
    torch.manual_seed(seed)
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
        int(fed.max()), int(contexts.max()), (starts[1:] - 1).cuda(),
    )  # fmt: skip
    pool = torch.empty(layers, 2, total, block_size, KV_HEADS, HEAD_DIM, dtype=torch.bfloat16, device="cuda").normal_()
    return pool, batch, noise(int(starts[-1]), (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM)


def noise(*shape: int, scale: float = 1.0) -> Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(std=scale)


def rope_table(length: int) -> RopeTable:
    """cos and sin for `length` positions, base 1e6."""
    half = HEAD_DIM // 2
    angle = torch.arange(length, device="cuda")[:, None] * 1e6 ** -(torch.arange(half, device="cuda") / half)
    return RopeTable(torch.cat((angle.cos(), angle.sin()), dim=-1).float())


def check_attention() -> list[str]:
    """Ragged batches against float64, on a pool of NaN: shapes x dtypes x block sizes."""
    mixed = [(1, 1), (700, 1), (0, 1), (33, 33), (257, 100), (64, 1), (1000, 7), (2048, 1), (16, 1), (300, 129)]
    decodes = [(1, 1), (0, 1), (5, 1), (2048, 1), (640, 1), (333, 1)]
    shapes = [
        (16, 8, 128, 16), (16, 8, 128, 256), (9, 3, 64, 16), (8, 8, 80, 33), (8, 1, 96, 64), (24, 3, 128, 4), (6, 2, 256, 32),
        (14, 2, 64, 1), (32, 4, 128, 128),
    ]  # fmt: skip
    table = []
    for index, (q_heads, kv_heads, head_dim, block_size) in enumerate(shapes):
        for dtype in (torch.bfloat16, torch.float16, torch.float32)[: 3 if index < 1 else 1 + index % 2]:
            errors = []
            many = [(c % 900 + 1, 1) for c in range(0, 9000, 61)]
            for rows in (decodes, mixed, many, [(1530, 30)], [(777, 777)]) if index < 2 else (decodes, mixed):
                args = (rows, q_heads, kv_heads, head_dim, block_size, dtype)
                step = oracle.paged_step(*args, seed=index, norm=index % 3 != 1, rope=index % 4 != 3, device="cuda")
                expected, pool = oracle.attention(step, EPS)
                rope = None if step.cos_sin is None else RopeTable(step.cos_sin)
                found = TritonOps().attention(step.qkv, step.kv_layer, step.q_norm, step.k_norm, EPS, rope, step.batch)
                live = torch.cat([torch.full((fed,), context > 0) for context, fed in rows]).cuda()
                errors.append(oracle.relative_error(found[live], expected[live]))
                written = ~pool.isnan()
                if not torch.equal(written, ~step.kv_layer.isnan()):
                    errors[-1] = float("nan")
                else:
                    errors[-1] = max(errors[-1], oracle.relative_error(step.kv_layer[written], pool[written]) / 4)
            table.append(verdict(f"attention {q_heads}/{kv_heads} d{head_dim} b{block_size} {dtype}", max(errors), dtype))
    return table


def check_rest() -> list[str]:
    """Linear, gated linear, norms and sampling against float64."""
    ops, table = TritonOps(), []
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for rows in (1, 3, 16, 37, 300):
            for outputs, inner in ((1024, 2048), (3072, 1024), (576, 1500))[: 3 if dtype is torch.bfloat16 else 1]:
                x = torch.randn(rows, inner, device="cuda").to(dtype)
                w = torch.randn(2 * outputs, inner, device="cuda").mul(inner**-0.5).to(dtype)
                gate, up = (x.double() @ w.double().T).chunk(2, dim=-1)
                found = ops.linear(x, w, w[:, 0].contiguous())
                wide = torch.cat((gate, up), -1) + w[:, 0].double()
                error = max(oracle.relative_error(found, wide), oracle.relative_error(ops.linear_silu_mul(x, w), F.silu(gate) * up))
                table.append(verdict(f"linear {rows}x{outputs}x{inner} {dtype}", error, dtype))
        for hidden in (576, 1024, 5000):
            x, y, w = (torch.randn(37, hidden, device="cuda").to(dtype) for _ in range(3))
            normed, total = ops.add_rms_norm(x, y, w[0], EPS)
            error = oracle.relative_error(normed, oracle.rms_norm(total, w[0], EPS))
            error = max(error, oracle.relative_error(ops.rms_norm(x, w[0], EPS), oracle.rms_norm(x, w[0], EPS)))
            table.append(verdict(f"norm {hidden} {dtype}", max(error, oracle.relative_error(total, x.double() + y.double())), dtype))
    logits = noise(64, VOCAB, scale=2.0)
    params = replace(sampling(64), temperature=torch.linspace(0.5, 1.5, 64, device="cuda"))
    tokens = ops.sample(logits, params)
    shares = (logits.double() / params.temperature.double()[:, None]).softmax(-1)
    upper = shares.cumsum(-1).gather(1, tokens[:, None])[:, 0]
    below = upper - shares.gather(1, tokens[:, None])[:, 0]
    u = uniforms(params)
    off = float(torch.maximum(below - u, u - upper).max())
    table.append(f"sample: u outside the token's share of the CDF by at most {off:.1e} {'ok' if off < 1e-5 else 'WRONG'}")
    same = torch.equal(ops.sample(logits, SamplingTensors.greedy(64, "cuda")), logits.argmax(-1))
    table.append(f"sample: greedy is argmax: {'ok' if same else 'WRONG'}")
    return table


def uniforms(params: SamplingTensors) -> Tensor:
    """The uniform numbers of `sample.uniform`, computed with Python integers."""
    found = []
    for seed, position in zip(params.seed.tolist(), params.position.tolist(), strict=True):
        z = seed * 0x9E3779B97F4A7C15 + position * 0xD1B54A32D192ED03 + 0x2545F4914F6CDD1D & 2**64 - 1
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & 2**64 - 1
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & 2**64 - 1
        found.append((((z ^ (z >> 31)) >> 40) + 0.5) / 2**24)
    return torch.tensor(found, dtype=torch.float64, device=params.seed.device)


def sampling(rows: int) -> SamplingTensors:
    """Temperature 0.6, as in the benchmark."""
    plain = replace(SamplingTensors.greedy(rows, "cuda"), all_greedy=False)
    where = torch.arange(rows, device="cuda")
    return replace(plain, temperature=plain.top_p * 0.6, seed=where * 7 + 1, position=where + 640)


def verdict(name: str, error: float, dtype: torch.dtype) -> str:
    limit = {torch.bfloat16: 6e-3, torch.float16: 1e-3, torch.float32: 1e-5}[dtype]
    return f"{name}: {error:.1e} {'ok' if error < limit else 'WRONG'}"


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


def bench_decode(block_sizes: Sequence[int] = (16, 256)) -> list[Line]:
    """The six snapshots, and uniform batches: attention (with norm, rotation and store) beside the read-only kernel."""
    lines = []
    cases = [(f"step {step}", snapshot(step)) for step in (1, 100, 300, 500, 700, 900)]
    cases += [(f"{rows} x {context}", [context] * rows) for rows, context in ((1, 640), (1, 8192), (16, 640), (64, 640), (256, 640))]
    weight, rope = noise(HEAD_DIM), rope_table(16384)
    for block_size in block_sizes:
        for name, contexts in cases:
            layers = max(2, 600_000_000 // (sum(contexts) * TOKEN_BYTES))
            pool, batch, qkv = cuda_step([(context, 1) for context in contexts], block_size, min(layers, 28))
            ops = TritonOps()
            each = len(pool)
            time = timing.microseconds(lambda: [ops.attention(qkv, kv, weight, weight, EPS, rope, batch) for kv in pool]) / each
            reads = [
                timing.microseconds(lambda form=form: [timing.read_only(kv, batch, form) for kv in pool]) / each
                for form in timing.READ_FORMS
            ]
            rate = f"{sum(contexts) * TOKEN_BYTES / time / 1e3:.0f} GB/s"
            lines.append(Line(f"decode b{block_size}", f"{name} ({len(contexts)} rows)", time, min(reads), rate))
            del pool, batch, qkv
    return lines


def bench_prefill(block_sizes: Sequence[int] = (16, 256)) -> list[Line]:
    """Fresh prompts and prompts with a cached prefix: store and attention, beside FlashAttention-3's attention."""
    lines = []
    weight, rope = noise(HEAD_DIM), rope_table(16384)
    for block_size in block_sizes:
        for (rows, cached, fed), best in FA3.items():
            pool, batch, qkv = cuda_step([(cached + fed, fed)] * rows, block_size, 2)
            ops = TritonOps()
            ops.attention(qkv, pool[0], weight, weight, EPS, rope, batch)
            both = timing.microseconds(lambda: [ops.attention(qkv, kv, weight, weight, EPS, rope, batch) for kv in pool]) / 2
            turned, out = noise(len(qkv), Q_HEADS + 2 * KV_HEADS, HEAD_DIM), noise(len(qkv), Q_HEADS * HEAD_DIM)
            time = timing.microseconds(lambda: [attend(ops, turned, kv, batch, out) for kv in pool]) / 2
            work = 4 * Q_HEADS * HEAD_DIM * rows * fed * (cached + (fed + 1) / 2)
            case = f"{rows} x ({cached} + {fed}), with store {both:.1f}"
            lines.append(Line(f"prefill b{block_size}", case, time, best, f"{work / time / 1e6:.0f} TFLOP/s"))
            del pool, batch, qkv, turned, out
    return lines


def attend(ops: TritonOps, turned: Tensor, kv_layer: Tensor, batch: StepBatch, out: Tensor) -> None:
    """Prefill attention alone, by the plan that `ops` made for the batch."""
    from minivllm.kernels.paged_prefill import paged_prefill

    assert ops._prefill is not None
    paged_prefill(turned, kv_layer, batch, ops._prefill, out)


def bench_linear() -> list[Line]:
    """The four products of a layer and the head, each over weights of 28 layers, beside cuBLAS (which does not gate)."""
    ops, lines = TritonOps(), []
    shapes = {"qkv": (4096, 1024), "o": (1024, 2048), "gate_up": (2 * INNER, 1024), "down": (1024, INNER), "head": (VOCAB, 1024)}
    for name, (outputs, inner) in shapes.items():
        weights = [noise(outputs, inner, scale=0.02) for _ in range(28 if name != "head" else 2)]
        for rows in (1, 4, 16, 32, 64, 128, 256):
            x = noise(rows, inner)
            run: Callable[[Tensor, Tensor], Tensor] = ops.linear_silu_mul if name == "gate_up" else ops.linear
            ours = timing.microseconds(lambda: [run(x, w) for w in weights]) / len(weights)
            cublas = timing.microseconds(lambda: [F.linear(x, w) for w in weights]) / len(weights)
            lines.append(Line(name, f"M {rows}", ours, cublas, f"{outputs * inner * 2 / ours / 1e3:.0f} GB/s"))
    return lines


def bench_small() -> list[Line]:
    """Norms and sampling; the ceiling is the time to read (and write) the bytes at 4.4 TB/s."""
    ops, lines = TritonOps(), []
    weight = noise(HIDDEN)
    for rows in (1, 16, 64, 256, 16384):
        x, y = noise(rows, HIDDEN), noise(rows, HIDDEN)
        time = timing.microseconds(lambda: [ops.add_rms_norm(x, y, weight, EPS) for _ in range(20)]) / 20
        lines.append(Line("add + norm", f"{rows} rows", time, x.nbytes * 4 / 4.4e6))
        z = noise(rows, 2 * INNER)
        time = timing.microseconds(lambda: [silu_mul(z) for _ in range(20)]) / 20
        lines.append(Line("silu * up", f"{rows} rows", time, z.nbytes * 1.5 / 4.4e6))
    for rows in (1, 16, 64, 256):
        for dtype in (torch.bfloat16, torch.float32):
            logits = [noise(rows, VOCAB).to(dtype) for _ in range(4)]
            for kind, params in (("T 0.6", sampling(rows)), ("greedy", SamplingTensors.greedy(rows, "cuda")), ("top-k, top-p", filtered(rows))):
                time = timing.microseconds(lambda: [ops.sample(each, params) for each in logits]) / 4
                lines.append(Line("sample", f"{rows} rows, {kind}, {dtype}", time, logits[0].nbytes / 4.4e6))
    return lines


def filtered(rows: int) -> SamplingTensors:
    """Top-k 50 and top-p 0.9."""
    params = sampling(rows)
    return replace(params, top_k=params.top_k + 50, top_p=params.top_p * 0.9, plain=False)


class RandomModel:
    """Qwen3-0.6B's decode step on random weights: embedding to sampling and the update of the requests' state."""

    def __init__(self) -> None:
        self.embed = noise(VOCAB, HIDDEN, scale=0.02)
        self.layers = [
            (noise(4096, HIDDEN, scale=0.03), noise(HIDDEN, 2048, scale=0.02), noise(2 * INNER, HIDDEN, scale=0.03), noise(HIDDEN, INNER, scale=0.02))
            for _ in range(LAYERS)
        ]  # fmt: skip
        self.norm, self.head_norm, self.rope = noise(HIDDEN), noise(HEAD_DIM), rope_table(4096)
        self.ops = TritonOps()

    def step(self, rows: int, context: int, block_size: int = 16) -> Callable[[], None]:
        """A function that decodes one token for `rows` requests of `context` tokens."""
        pool, batch, _ = cuda_step([(context, 1)] * rows, block_size, LAYERS)
        ids = torch.zeros(rows, dtype=torch.int64, device="cuda")
        tokens = torch.randint(0, VOCAB, (rows, 4096), dtype=torch.int32, device="cuda")
        lengths = torch.full((rows,), context, dtype=torch.int32, device="cuda")
        start = lengths.clone()
        seats, behind, params = torch.arange(rows, dtype=torch.int32, device="cuda"), torch.full_like(lengths, -1), sampling(rows)
        tables = batch.block_tables.clone()

        def run() -> None:
            step_inputs(
                seats, behind, batch.query_starts, tokens, lengths, tables, block_size, 1,
                ids, batch.positions, batch.slots, batch.context_lens, batch.block_tables,
            )  # fmt: skip
            ops = self.ops
            x = F.embedding(ids, self.embed)
            normed, residual = ops.rms_norm(x, self.norm, EPS), x
            for (qkv, o, gate_up, down), kv in zip(self.layers, pool, strict=True):
                seen = ops.attention(ops.linear(normed, qkv), kv, self.head_norm, self.head_norm, EPS, self.rope, batch)
                normed, residual = ops.add_rms_norm(ops.linear(seen, o), residual, self.norm, EPS)
                normed, residual = ops.add_rms_norm(ops.linear(ops.linear_silu_mul(normed, gate_up), down), residual, self.norm, EPS)
            append_tokens(ops.sample(ops.linear(normed, self.embed), params), seats, tokens, lengths)
            lengths.copy_(start)  # so that every replay sees the same context

        return run


def bench_step() -> list[Line]:
    """A whole decode step in one graph, context 640; the ceiling is weights and KV read at 4.4 TB/s."""
    model, lines = RandomModel(), []
    for rows in (1, 4, 16, 32, 64, 128, 256):
        bytes_read = 1.192e9 + rows * 640 * TOKEN_BYTES * LAYERS
        lines.append(Line("step", f"{rows} x 640", timing.microseconds(model.step(rows, 640)), bytes_read / 4.4e6))
    return lines


SECTIONS: dict[str, Callable[[], list[Line]]] = {
    "decode": bench_decode, "prefill": bench_prefill, "linear": bench_linear, "small": bench_small, "step": bench_step,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 1 if any kernel is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="check," + ",".join(SECTIONS), help="comma-separated: check, " + ", ".join(SECTIONS))
    parser.add_argument("--json", type=Path, help="write all lines there")
    args = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error("needs a CUDA GPU")
    only, report, wrong = args.only.split(","), [], 0
    if "check" in only:
        checks = check_attention() + check_rest()
        wrong = sum(not line.endswith("ok") for line in checks)
        print("\n".join(checks), flush=True)
        report += [{"check": line} for line in checks]
    for name, section in SECTIONS.items():
        for line in section() if name in only else []:
            of = "" if line.ceiling is None else f"{line.ceiling:9.1f} {line.ceiling / line.microseconds:5.2f}"
            print(f"{line.kernel:14} {line.case:44} {line.microseconds:9.2f} {of:15} {line.rate}", flush=True)
            report.append(vars(line))
        torch.cuda.empty_cache()
    if args.json:
        args.json.write_text(json.dumps(report, indent=1))
    print(f"{wrong} checks failed" if wrong else "all checks passed")
    return min(wrong, 1)


if __name__ == "__main__":
    raise SystemExit(main())

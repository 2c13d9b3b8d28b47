"""Every kernel against float64, over shapes, dtypes and block sizes; one printed line each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from minivllm.bench import oracle
from minivllm.kernels.batch import RopeTable, SamplingTensors
from minivllm.kernels.triton_ops import TritonOps

EPS = 1e-6
LIMITS = {torch.bfloat16: 6e-3, torch.float16: 1e-3, torch.float32: 1e-5}  # relative error
BF16, FP16, FP32 = LIMITS
DECODES = [(1, 1), (0, 1), (5, 1), (2048, 1), (640, 1), (333, 1)]  # (context, fed)
MIXED = [(1, 1), (700, 1), (0, 1), (33, 33), (257, 100), (64, 1), (1000, 7), (2048, 1), (16, 1), (300, 129)]
MANY = [(context % 900 + 1, 1) for context in range(0, 9000, 61)]
HITS = [(700 + row, 150) for row in range(36)]  # enough for the high tiles of prefill
SHAPES = {  # (query heads, key heads, head size, block size): dtypes
    (16, 8, 128, 16): (BF16, FP16, FP32), (16, 8, 128, 256): (BF16,), (9, 3, 64, 16): (BF16, FP16),
    (8, 8, 80, 33): (FP16,), (8, 1, 96, 64): (BF16,), (24, 3, 128, 4): (FP16,), (6, 2, 256, 32): (BF16,),
    (14, 2, 64, 1): (BF16,), (32, 4, 128, 128): (FP16,),
}  # fmt: skip


def checks() -> Iterator[str]:
    """Lines that end with "ok" or "WRONG"."""
    yield from attention()
    yield from products_and_norms()
    yield from sampling()


def verdict(name: str, dtype: torch.dtype, *errors: float) -> str:
    """The largest of the errors (NaN included) against the dtype's limit."""
    worst = max(errors, key=lambda error: (error != error, error))
    return f"{name} {str(dtype).removeprefix('torch.')}: {worst:.1e} {'ok' if worst < LIMITS[dtype] else 'WRONG'}"


def attention() -> Iterator[str]:
    """Decodes, prompts, prompts with a cached prefix, mixed steps and padding rows, on a pool of NaN."""
    for number, ((q_heads, kv_heads, head_dim, block_size), dtypes) in enumerate(SHAPES.items()):
        for dtype in dtypes:
            errors = []
            for rows in (DECODES, MIXED, MANY, HITS, [(1530, 30)], [(777, 777)])[: 6 if number < 2 else 2]:
                shape = (q_heads, kv_heads, head_dim, block_size, dtype)
                norm, rotate = number % 3 != 1, number % 4 != 3
                step = oracle.paged_step(rows, *shape, seed=number, norm=norm, rope=rotate, device="cuda")
                expected, pool = oracle.attention(step, EPS)
                rope = None if step.cos_sin is None else RopeTable(step.cos_sin)
                found = TritonOps().attention(step.qkv, step.kv_layer, step.q_norm, step.k_norm, EPS, rope, step.batch)
                live = torch.cat([torch.full((fed,), context > 0) for context, fed in rows]).cuda()
                written = ~pool.isnan()
                errors.append(oracle.relative_error(found[live], expected[live]))
                errors.append(oracle.relative_error(step.kv_layer[written], pool[written]))
                if not torch.equal(written, ~step.kv_layer.isnan()):
                    errors.append(float("nan"))
            name = f"attention, {q_heads}/{kv_heads} heads of {head_dim}, blocks of {block_size},"
            yield verdict(name, dtype, *errors)


def products_and_norms() -> Iterator[str]:
    """Linear with bias, gated linear, norm with and without a residual."""
    ops = TritonOps()
    for dtype in LIMITS:
        for rows in (1, 3, 16, 37, 300):
            for outputs, inner in ((1024, 2048), (3072, 1024), (576, 1500))[: 3 if dtype is BF16 else 1]:
                x = torch.randn(rows, inner, device="cuda").to(dtype)
                weight = torch.randn(2 * outputs, inner, device="cuda").mul(inner**-0.5).to(dtype)
                bias = weight[:, 0].contiguous()
                wide = x.double() @ weight.double().T
                gate, up = wide.chunk(2, dim=-1)
                yield verdict(
                    f"linear {rows} x {inner} x {2 * outputs}", dtype,
                    oracle.relative_error(ops.linear(x, weight, bias), wide + bias.double()),
                    oracle.relative_error(ops.linear_silu_mul(x, weight), F.silu(gate) * up),
                )  # fmt: skip
        for hidden in (576, 1024, 5000):
            x, y, weight = (torch.randn(37, hidden, device="cuda").to(dtype) for _ in range(3))
            normed, total = ops.add_rms_norm(x, y, weight[0], EPS)
            yield verdict(
                f"norm of {hidden}", dtype,
                oracle.relative_error(total, x.double() + y.double()),
                oracle.relative_error(normed, oracle.rms_norm(total, weight[0], EPS)),
                oracle.relative_error(ops.rms_norm(x, weight[0], EPS), oracle.rms_norm(x, weight[0], EPS)),
            )  # fmt: skip


def sampling(rows: int = 64, vocab: int = 151_936) -> Iterator[str]:
    """The drawn token's share of the cumulative distribution must hold u; greedy must be argmax."""
    ops = TritonOps()
    logits = torch.randn(rows, vocab, device="cuda").mul(2).bfloat16()
    greedy = SamplingTensors.greedy(rows, "cuda")
    where = torch.arange(rows, device="cuda")
    temperature = torch.linspace(0.5, 1.5, rows, device="cuda")
    params = replace(greedy, temperature=temperature, seed=where * 7 - 1, position=where + 640, all_greedy=False)
    tokens = ops.sample(logits, params)[:, None]
    shares = (logits.double() / temperature.double()[:, None]).softmax(-1)
    upper = shares.cumsum(-1).gather(1, tokens)[:, 0]
    u = uniforms(params)
    off = float(torch.maximum(upper - shares.gather(1, tokens)[:, 0] - u, u - upper).max())
    yield f"sampling: u outside the token's share by at most {max(off, 0):.1e} {'ok' if off < 1e-5 else 'WRONG'}"
    few = ops.sample(logits, replace(params, top_k=greedy.top_k + 5, plain=False))[:, None]
    inside = bool((logits.gather(1, few) >= logits.topk(5).values[:, 4:]).all())
    yield f"sampling: top-k draws one of the k {'ok' if inside else 'WRONG'}"
    same = torch.equal(ops.sample(logits, greedy), logits.argmax(-1))
    yield f"sampling: greedy is argmax {'ok' if same else 'WRONG'}"


def uniforms(params: SamplingTensors) -> Tensor:
    """The uniform numbers of `sample.uniform`, with Python's integers."""
    found = []
    for seed, position in zip(params.seed.tolist(), params.position.tolist(), strict=True):
        z = seed * 0x9E3779B97F4A7C15 + position * 0xD1B54A32D192ED03 + 0x2545F4914F6CDD1D & 2**64 - 1
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & 2**64 - 1
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & 2**64 - 1
        found.append((((z ^ (z >> 31)) >> 40) + 0.5) / 2**24)
    return torch.tensor(found, dtype=torch.float64, device=params.seed.device)

"""Choose a token by inverse CDF: one uniform number, two passes over the logits, no sort and no noise per token.

Pass one reduces each chunk of the vocabulary to its largest logit, where that is, and its sum of exp(logit -
largest). Pass two, one program per row, finds in those few numbers the chunk in which the cumulative probability
exceeds u, and then the token inside it. u is a hash of (seed, position), so a request draws the same token whatever
its neighbours, its row or the batch size.

Top-k, top-p and min-p all keep "the tokens whose logit is at least some threshold". A pass before finds it by
bisection over the bits of a logit: 16 or 32 halvings, each a count (top-k) or a sum of probabilities (top-p).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from minivllm.kernels.batch import SamplingTensors
from minivllm.kernels.launch import next_power_of_2

CHUNK = 4096
ZERO_BITS = {torch.float32: 0, torch.bfloat16: 16, torch.float16: 13}  # at the end of a logit as float32


@triton.jit
def uniform(seed, position):
    """splitmix64 (Steele et al. 2014) of both numbers -> u in (0, 1), float64: in float32 it could round to 1."""
    z = seed.to(tl.uint64) * 0x9E3779B97F4A7C15 + position.to(tl.uint64) * 0xD1B54A32D192ED03 + 0x2545F4914F6CDD1D
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return ((z ^ (z >> 31)) >> 40).to(tl.float64) * (1.0 / 16777216.0) + (0.5 / 16777216.0)


@triton.jit
def inverse(temperature):
    """1 / temperature; 1 for greedy rows (temperature 0)."""
    return 1.0 / tl.where(temperature > 0, temperature, 1.0)


@triton.jit
def chunk_kernel(
    logits, temperatures, thresholds, largest, where_largest, mass, vocab, stride, chunks,
    FILTERED: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One program: one chunk of one row."""
    row, chunk = tl.program_id(0), tl.program_id(1)
    ids = chunk * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(logits + row.to(tl.int64) * stride + ids, mask=ids < vocab, other=float("-inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    at = row * chunks + chunk
    tl.store(largest + at, top)
    temperature = tl.load(temperatures + row)
    if temperature == 0:
        tl.store(where_largest + at, tl.min(tl.where(x == top, ids, vocab - 1), axis=0))
    else:
        weight = tl.exp((x - tl.where(top == float("-inf"), 0.0, top)) * inverse(temperature))
        if FILTERED:
            weight = tl.where(x >= tl.load(thresholds + row), weight, 0.0)
        tl.store(mass + at, tl.sum(weight, axis=0))


@triton.jit
def pick_kernel(
    logits, temperatures, thresholds, seeds, positions, largest, where_largest, mass, tokens, vocab, stride, chunks,
    FILTERED: tl.constexpr, CHUNK: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """One program: one row. Rounding may leave the last sum just short of u: then the last possible token is taken."""
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK_C)
    tops = tl.load(largest + row * chunks + c, mask=c < chunks, other=float("-inf"))
    top = tl.max(tops, axis=0)
    temperature = tl.load(temperatures + row)
    if temperature == 0:
        best = tl.min(tl.where(tops == top, c, chunks - 1), axis=0)
        tl.store(tokens + row, tl.load(where_largest + row * chunks + best).to(tl.int64))
    else:
        scale = inverse(temperature)
        weights = tl.load(mass + row * chunks + c, mask=c < chunks, other=0.0) * tl.exp((tops - top) * scale)
        reached = tl.cumsum(weights.to(tl.float64), axis=0)
        target = uniform(tl.load(seeds + row), tl.load(positions + row)) * tl.max(reached, axis=0)
        last = tl.max(tl.where(weights > 0, c, 0), axis=0)
        chunk = tl.min(tl.where((reached > target) & (weights > 0), c, last), axis=0)
        before = tl.sum(tl.where(c < chunk, weights.to(tl.float64), 0.0), axis=0)

        ids = chunk * CHUNK + tl.arange(0, CHUNK)
        x = tl.load(logits + row.to(tl.int64) * stride + ids, mask=ids < vocab, other=float("-inf")).to(tl.float32)
        weight = tl.exp((x - top) * scale)
        if FILTERED:
            weight = tl.where(x >= tl.load(thresholds + row), weight, 0.0)
        last_id = tl.max(tl.where(weight > 0, ids, 0), axis=0)
        passed = (tl.cumsum(weight, axis=0) > (target - before).to(tl.float32)) & (weight > 0)
        tl.store(tokens + row, tl.min(tl.where(passed, ids, last_id), axis=0).to(tl.int64))


@triton.jit
def threshold_kernel(
    logits, temperatures, top_ks, top_ps, min_ps, thresholds, vocab, stride, BLOCK: tl.constexpr, SHIFT: tl.constexpr
):  # fmt: skip
    """One program: one row. Its threshold is the largest logit that keeps enough tokens, or enough probability."""
    row = tl.program_id(0)
    k, p, min_p = tl.load(top_ks + row), tl.load(top_ps + row), tl.load(min_ps + row)
    temperature = tl.load(temperatures + row)
    scale = inverse(temperature)
    logits += row.to(tl.int64) * stride
    lane = tl.arange(0, BLOCK)
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in tl.range(0, vocab, BLOCK, loop_unroll_factor=4):  # four loads on their way at a time
        x = tl.load(logits + start + lane, mask=start + lane < vocab, other=float("-inf"))
        highest = tl.maximum(highest, x.to(tl.float32))
    top = tl.max(highest, axis=0)
    threshold = tl.full([], -3.0e38, tl.float32)
    if (k > 0) & (k < vocab):
        threshold = bisect(logits, scale, top, threshold, k.to(tl.float32), vocab, BLOCK, SHIFT, True)
    if p < 1.0:
        wanted = p * kept(logits, scale, top, threshold, vocab, BLOCK, False)
        threshold = tl.maximum(threshold, bisect(logits, scale, top, threshold, wanted, vocab, BLOCK, SHIFT, False))
    if min_p > 0:
        threshold = tl.maximum(threshold, top + tl.log(min_p) / scale)
    tl.store(thresholds + row, tl.minimum(threshold, top))


@triton.jit
def kept(logits, scale, top, threshold, vocab, BLOCK: tl.constexpr, COUNT: tl.constexpr):
    """How many tokens (COUNT), or how much of exp((x - top) * scale), reach the threshold."""
    lane = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, vocab, BLOCK, loop_unroll_factor=4):
        x = tl.load(logits + start + lane, mask=start + lane < vocab, other=float("-inf")).to(tl.float32)
        total += tl.where(x >= threshold, 1.0 if COUNT else tl.exp((x - top) * scale), 0.0)
    return tl.sum(total, axis=0)


@triton.jit
def bisect(
    logits, scale, top, floor, wanted, vocab, BLOCK: tl.constexpr, SHIFT: tl.constexpr, COUNT: tl.constexpr
):  # fmt: skip
    """The largest threshold, from the floor to the top, that `wanted` tokens, or that much probability, reach.

    Keys are the bits of a float32, turned so that they compare like the float; the SHIFT lowest are 0 in any logit.
    """
    low, high = ordered(floor.to(tl.int32, bitcast=True)) >> SHIFT, ordered(top.to(tl.int32, bitcast=True)) >> SHIFT
    while low < high:  # low keeps enough, or is the floor; above high not enough is kept
        middle = (low | high) - ((low ^ high) >> 1)  # rounded up, without overflow
        threshold = ordered(middle << SHIFT).to(tl.float32, bitcast=True)
        enough = kept(logits, scale, top, threshold, vocab, BLOCK, COUNT) >= wanted
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle - 1)
    return ordered(low << SHIFT).to(tl.float32, bitcast=True)


@triton.jit
def ordered(bits):
    """Bits of a float32 -> an int32 that compares like it; its own inverse."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def sample(logits: Tensor, params: SamplingTensors) -> Tensor:
    """`logits: [S, V]`, float32, bfloat16 or float16 -> token ids `[S]` int64; greedy rows take the first maximum.

    Tokens tied with the last one that top-k or top-p keeps are kept too.
    """
    rows, width = logits.shape
    vocab = min(width, params.vocab_size or width)
    chunk = min(CHUNK, next_power_of_2(vocab))
    chunks = triton.cdiv(vocab, chunk)
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    stats = torch.empty(2, rows, chunks, dtype=torch.float32, device=logits.device)
    where_largest = torch.empty(rows, chunks, dtype=torch.int32, device=logits.device)
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    thresholds, filtered = params.temperature, not (params.plain or params.all_greedy)
    if filtered:
        thresholds = torch.empty(rows, dtype=torch.float32, device=logits.device)
        threshold_kernel[(rows,)](
            logits, params.temperature, params.top_k, params.top_p, params.min_p, thresholds, vocab, logits.stride(0),
            BLOCK=min(8192, next_power_of_2(vocab)), SHIFT=ZERO_BITS[logits.dtype], num_warps=16,
        )  # fmt: skip
    chunk_kernel[(rows, chunks)](
        logits, params.temperature, thresholds, stats[0], where_largest, stats[1], vocab, logits.stride(0), chunks,
        FILTERED=filtered, CHUNK=chunk, num_warps=4,
    )  # fmt: skip
    pick_kernel[(rows,)](
        logits, params.temperature, thresholds, params.seed, params.position, stats[0], where_largest, stats[1], tokens,
        vocab, logits.stride(0), chunks, FILTERED=filtered, CHUNK=chunk, BLOCK_C=next_power_of_2(chunks), num_warps=4,
    )  # fmt: skip
    return tokens

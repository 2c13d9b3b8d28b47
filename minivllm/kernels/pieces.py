"""Split attention: pieces of one context are attended in parallel, and merged afterwards.

Softmax over a union of pieces needs two things of each: its output, and the logarithm of its sum of exponentials,
which weighs it. Sources: Milakov & Gimelshein 2018 (online softmax), Dao et al. 2023 (flash-decoding).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def store_piece(acc, m, l, partial, log_sums, real):
    """Leave a piece's output and log2-sum for `merge_pieces`.

    `acc: [M, BLOCK_D]`, `m, l: [M]` largest score and sum of exp2(score - m); `partial, log_sums`: pointers, [M,
    BLOCK_D] and [M, 1]. A row that saw no key of the piece weighs nothing.
    """
    seen = l > 0
    tl.store(partial, tl.where(seen[:, None], acc / tl.where(seen, l, 1.0)[:, None], 0.0), mask=real)
    rows = tl.max(real.to(tl.int32), axis=1)[:, None] > 0
    tl.store(log_sums, tl.where(seen, m + tl.log2(tl.where(seen, l, 1.0)), float("-inf"))[:, None], mask=rows)


@triton.jit
def merge_pieces(partial, log_sums, pieces, stride, element, inside, D: tl.constexpr):
    """Weighted mean of the pieces' outputs -> [E] float32, four pieces at a time, so that their loads overlap.

    `element: [E]` counts row * D + dimension; pieces lie `stride` rows apart.
    """
    top = tl.full(element.shape, float("-inf"), tl.float32)
    total = tl.zeros(element.shape, tl.float32)
    weight = tl.zeros(element.shape, tl.float32)
    for start in range(0, pieces, 4):
        a, first = load_piece(partial, log_sums, start, pieces, stride, element, inside, D)
        b, second = load_piece(partial, log_sums, start + 1, pieces, stride, element, inside, D)
        c, third = load_piece(partial, log_sums, start + 2, pieces, stride, element, inside, D)
        d, fourth = load_piece(partial, log_sums, start + 3, pieces, stride, element, inside, D)
        highest = tl.maximum(tl.maximum(top, tl.maximum(a, b)), tl.maximum(c, d))
        shrink = tl.exp2(top - highest)
        a, b, c, d = tl.exp2(a - highest), tl.exp2(b - highest), tl.exp2(c - highest), tl.exp2(d - highest)
        total = total * shrink + first * a + second * b + third * c + fourth * d
        weight = weight * shrink + a + b + c + d
        top = highest
    return total / weight


@triton.jit
def load_piece(partial, log_sums, piece, pieces, stride, element, inside, D: tl.constexpr):
    """Log2-sum and output of one piece, [E] each; behind the last piece one that weighs nothing.

    The cache of a multiprocessor does not see what the others wrote, so it is passed over (".cg").
    """
    real = inside & (tl.full(element.shape, piece, tl.int32) < pieces)
    row = piece * stride
    log_sum = tl.load(log_sums + row + element // D, mask=real, other=float("-inf"), cache_modifier=".cg")
    return log_sum, tl.load(partial + row * D + element, mask=real, other=0.0, cache_modifier=".cg")

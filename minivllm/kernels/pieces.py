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
def merge_pieces(partial, log_sums, pieces, stride, element, inside, D: tl.constexpr, AT_ONCE: tl.constexpr):
    """Weighted mean of the pieces' outputs -> [E] float32, AT_ONCE pieces loaded together.

    `element: [E]` counts row * D + dimension; pieces lie `stride` rows apart. The cache of a multiprocessor does not
    see what the others wrote, so it is passed over (".cg").
    """
    top = tl.full(element.shape, float("-inf"), tl.float32)
    total = tl.zeros(element.shape, tl.float32)
    weight = tl.zeros(element.shape, tl.float32)
    for start in range(0, pieces, AT_ONCE):
        piece = start + tl.arange(0, AT_ONCE)[:, None]  # [AT_ONCE, 1]
        real = (piece < pieces) & inside[None, :]
        from_row = piece * stride
        log_sum = tl.load(log_sums + from_row + element // D, mask=real, other=float("-inf"), cache_modifier=".cg")
        output = tl.load(partial + from_row * D + element, mask=real, other=0.0, cache_modifier=".cg")
        highest = tl.maximum(top, tl.max(log_sum, axis=0))
        share = tl.exp2(log_sum - highest[None, :])
        shrink = tl.exp2(top - highest)
        total = total * shrink + tl.sum(output * share, axis=0)
        weight = weight * shrink + tl.sum(share, axis=0)
        top = highest
    return total / weight

"""Split attention: pieces of one context are attended in parallel, and whoever finishes last merges them.

Softmax over a union of pieces needs only three things of each: its largest score m, its sum l of exp2(score - m), and its
output accumulated with the same weights. Source: Milakov & Gimelshein 2018 (online softmax), Dao et al. 2023 (flash-decoding).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def finish(acc, m, l, out, keep, partial, stats, piece, pieces, stride, counter, D: tl.constexpr):
    """Normalise and store an accumulator [M, BLOCK_D]; with several pieces, the last one to arrive here merges all of them.

    `out, keep`: [M, BLOCK_D] pointers and mask; `partial, stats`: [M, BLOCK_D] and [M, 1] pointers into piece 0's scratch,
    `stride` rows (of D, and of 2) apart from the next piece's; `counter`: how many arrived so far, left at 0 for the next launch.
    """
    if pieces == 1:
        tl.store(out, acc / l[:, None], mask=keep)
    else:
        rows = tl.max(keep.to(tl.int32), axis=1)[:, None] > 0  # [M, 1]
        tl.store(partial + piece * stride * D, acc, mask=keep)
        tl.store(stats + piece * stride * 2, m[:, None], mask=rows)
        tl.store(stats + piece * stride * 2 + 1, l[:, None], mask=rows)
        tl.debug_barrier()  # every thread's part is written before this program is counted
        arrived = tl.atomic_add(counter, 1, sem="acq_rel")
        if arrived == pieces - 1:
            top = tl.full(m.shape, float("-inf"), tl.float32)
            weight = tl.zeros(l.shape, tl.float32)
            total = tl.zeros(acc.shape, tl.float32)
            for i in range(pieces):
                m_i = tl.max(tl.load(stats + i * stride * 2, mask=rows, other=0.0, cache_modifier=".cg"), axis=1)
                l_i = tl.max(tl.load(stats + i * stride * 2 + 1, mask=rows, other=1.0, cache_modifier=".cg"), axis=1)
                acc_i = tl.load(partial + i * stride * D, mask=keep, other=0.0, cache_modifier=".cg")
                highest = tl.maximum(top, m_i)
                old, new = tl.exp2(top - highest), tl.exp2(m_i - highest)
                weight = weight * old + l_i * new
                total = total * old[:, None] + acc_i * new[:, None]
                top = highest
            tl.store(out, total / weight[:, None], mask=keep)
            tl.store(counter, 0)

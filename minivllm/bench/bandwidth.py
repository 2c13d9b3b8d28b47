"""How fast this GPU reads memory: a kernel that does nothing else, over far more than the L2 cache holds."""

import torch
import triton
import triton.language as tl

from minivllm.bench.timing import microseconds


@triton.jit
def sum_kernel(data, out, PER_PROGRAM: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One program: read PER_PROGRAM elements, BLOCK at a time, and store one sum."""
    base = tl.program_id(0).to(tl.int64) * PER_PROGRAM
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, PER_PROGRAM, BLOCK):
        total += tl.load(data + base + start + tl.arange(0, BLOCK)).to(tl.float32)
    tl.store(out + tl.program_id(0), tl.sum(total, axis=0))


def read_rate(gigabytes: int = 4) -> float:
    """Bytes per second, the best of a few program sizes, each the median of several replays."""
    data = torch.randn(gigabytes << 29, dtype=torch.bfloat16, device="cuda")
    best = 0.0
    for per_program in (1 << 14, 1 << 15, 1 << 16):
        programs = data.numel() // per_program
        out = torch.empty(programs, dtype=torch.float32, device="cuda")

        def read(per_program: int = per_program, programs: int = programs, out: torch.Tensor = out) -> None:
            sum_kernel[(programs,)](data, out, PER_PROGRAM=per_program, BLOCK=4096, num_warps=4)

        best = max(best, data.nbytes / (microseconds(read) * 1e-6))
    return best

"""How a kernel runs: compiled for the GPU, or one program after another in Triton's interpreter on the CPU.

Importing this module on a machine without a GPU switches the interpreter on (`TRITON_INTERPRET=1`), because Triton
decides when a kernel is defined, not when it is launched.
"""

from __future__ import annotations

import os
import sys
from functools import cache

import torch

if not torch.cuda.is_available() and "triton" not in sys.modules:
    os.environ.setdefault("TRITON_INTERPRET", "1")

import triton
import triton.language as tl

INTERPRETED: bool = bool(triton.knobs.runtime.interpret)


def compute_dtype(dtype: torch.dtype) -> tl.dtype:
    """The dtype in which a kernel multiplies matrices of `dtype`; sums are float32 in any case. An 8-bit float becomes a
    float16, which holds all of them, in one instruction.

    The interpreter computes on numpy arrays, which know no bfloat16 (it multiplies the bit patterns), so there it is
    float32. Raises ValueError for a dtype the kernels do not take.
    """
    names = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
    names[torch.float8_e4m3fn] = tl.float16
    if dtype not in names:
        raise ValueError(f"dtype {dtype}: the kernels take bfloat16, float16 or float32, and K/V as float8_e4m3fn too")
    return tl.float32 if INTERPRETED else names[dtype]


@cache
def programmatic_launch() -> bool:
    """Whether a kernel may start before its predecessor has ended (programmatic dependent launch, from Hopper on).

    Such a kernel reads constants (weights) at once, and waits (`gdc_wait`) before it touches anything that was
    computed.
    """
    return not INTERPRETED and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)


@cache
def multiprocessors() -> int:
    """Multiprocessors of the current GPU (132 on an H200); a small number for the interpreter."""
    return 4 if INTERPRETED else torch.cuda.get_device_properties("cuda").multi_processor_count


@cache
def shared_memory() -> int:
    """Bytes of shared memory that one program may take (232,448 on an H200), which is no matter in the interpreter."""
    if INTERPRETED:
        return sys.maxsize
    device = torch.cuda.current_device()
    return int(triton.runtime.driver.active.utils.get_device_properties(device)["max_shared_mem"])


def next_power_of_2(n: int) -> int:
    """Triton's tiles have power-of-two sides; the rest of a tile is masked."""
    return 1 << max(n - 1, 0).bit_length()

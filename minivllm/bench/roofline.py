"""The ceilings of this machine, measured in the same run: how fast memory is read, how fast matrices are multiplied."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from minivllm.bench import shapes
from minivllm.model.spec import ModelSpec


@dataclass(frozen=True)
class Ceilings:
    """`read`: bytes per second; `matmul`: FLOP per second in the model's dtype."""

    read: float
    matmul: float


def measure(device: str, dtype: torch.dtype) -> Ceilings:
    """Median of several reads of a tensor larger than any cache, and of several square products of random matrices."""
    gpu = device.startswith("cuda")
    size = 8192 if gpu else 1024
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    matmul = _median(lambda: left @ right, gpu)
    if gpu:
        from minivllm.bench.bandwidth import read_rate

        return Ceilings(read_rate(), 2 * size**3 / matmul)
    many = torch.randn(1 << 26)
    return Ceilings(many.nbytes / _median(lambda: many.sum(), gpu), 2 * size**3 / matmul)


def floor(
    spec: ModelSpec, work: Sequence[tuple[int, int]], ceilings: Ceilings, dtype_bytes: int = 2, pool_bytes: int = 2
) -> float:
    """The least seconds for requests of `(prompt, output)` tokens that all run at once: bytes over bandwidth plus FLOPs over rate.

    A decode step reads all weights once and the K/V of every live context; a prompt costs its matrices and its attention.
    `dtype_bytes`: of a weight, `pool_bytes`: of a number in the K/V pool.
    """
    steps = max(output for _, output in work) - 1
    contexts = sum(prompt + i for prompt, output in work for i in range(1, output))
    read = steps * shapes.bytes_of_weights(spec, dtype_bytes) + contexts * shapes.kv_bytes(spec, pool_bytes)
    attention = sum(4 * spec.num_layers * spec.num_heads * spec.head_dim * prompt**2 // 2 for prompt, _ in work)
    flops = sum(prompt for prompt, _ in work) * shapes.flops_per_token(spec) + attention
    return read / ceilings.read + flops / ceilings.matmul


def _median(region: Callable[[], object], gpu: bool, repeats: int = 7) -> float:
    times = []
    for _ in range(repeats + 2):
        began = time.perf_counter()
        region()
        if gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times[2:])

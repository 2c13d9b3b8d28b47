"""The pool that holds all keys and values, `[layers, 2, blocks, block_size, kv_heads, head_dim]`, and how large it may be."""

import torch
from torch import Tensor

from minivllm.config import EngineConfig, kv_bytes_per_token, num_blocks_for
from minivllm.model.spec import ModelSpec


def gpu_budget(total: int, free: int, own: int, utilization: float) -> int:
    """Bytes a KV pool may take on a card shared with others.

    `total` memory of the card, `free` of it now, `own`: what this engine holds already and will need at its peak
    (weights, activations, graphs), of which nothing is counted in `free`. The pool may fill up our share of the card, but
    never more than is really free. Raises `ValueError` when nothing is left, saying which knob to turn.
    """
    share = int(total * utilization) - own
    budget = min(share, free)
    if budget <= 0:
        gib = 1 << 30
        raise ValueError(
            f"no memory is left for the KV pool: the card has {total / gib:.1f} GiB, {free / gib:.1f} GiB free; "
            f"gpu_memory_utilization={utilization} allows {total * utilization / gib:.1f} GiB, weights and activations need "
            f"{own / gib:.1f} GiB. Raise gpu_memory_utilization, free the card, or lower max_num_batched_tokens"
        )
    return budget


def pool_dtype(config: EngineConfig, spec: ModelSpec, model_dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype K and V are stored in. `fp8` (e4m3, no scales) halves their bytes; computing stays in the model's dtype.

    Raises `ValueError` where the kernels cannot read it.
    """
    if config.kv_cache_dtype == "auto":
        return model_dtype
    if device.type != "cuda" or config.kernels not in ("auto", "triton"):
        raise ValueError("kv_cache_dtype='fp8' needs an NVIDIA GPU and the Triton kernels; use 'auto' here")
    if spec.head_dim % 16:
        raise ValueError(
            f"kv_cache_dtype='fp8' needs a head_dim that is a multiple of 16; this model has {spec.head_dim}"
        )
    return torch.float8_e4m3fn


def count_blocks(config: EngineConfig, spec: ModelSpec, dtype: torch.dtype, budget: int) -> int:
    """Blocks the pool gets: `num_blocks` if given, checked against `budget` bytes, else as many as fit.

    Raises `ValueError` naming wanted and available when not even one fits, or fewer than asked for.
    """
    per_token = kv_bytes_per_token(spec.num_layers, spec.num_kv_heads, spec.head_dim, dtype.itemsize)
    fitting = num_blocks_for(budget, config.block_size, per_token)
    wanted = config.num_blocks or max(1, fitting)
    if wanted > fitting:
        need = wanted * config.block_size * per_token
        raise ValueError(
            f"{wanted} KV blocks of {config.block_size} tokens need {need / 2**20:.1f} MiB, {budget / 2**20:.1f} MiB are "
            f"available: at most {fitting} blocks. Lower num_blocks, or raise kv_cache_memory (CPU) or "
            "gpu_memory_utilization (GPU)"
        )
    return wanted


def allocate(spec: ModelSpec, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """An uninitialised pool. Whatever lies in slots nobody wrote must never reach a result."""
    shape = (spec.num_layers, 2, num_blocks, block_size, spec.num_kv_heads, spec.head_dim)
    return torch.empty(shape, dtype=dtype, device=device)


def copy_blocks(kv: Tensor, copies: tuple[tuple[int, int], ...]) -> None:
    """Copy whole blocks, all layers, K and V: `(source, destination)` pairs, in order (copy-on-write)."""
    for source, destination in copies:
        kv[:, :, destination].copy_(kv[:, :, source])

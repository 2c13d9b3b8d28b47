"""Every knob of the engine in one frozen dataclass, and the formula that says what a token of KV cache costs."""

import re
from dataclasses import dataclass, fields, replace
from typing import Any

from minivllm.allowed import flag, one_of, real, shown, whole

POLICIES = ("fcfs", "priority", "longest-prefix", "shortest-prompt")
EVICTIONS = ("lru", "fifo")
LAYOUTS = ("paged", "contiguous")
RESERVATIONS = ("max", "pow2", "oracle")
ALLOCATORS = ("buddy", "first-fit")
KERNELS = ("auto", "reference", "triton", "interpreter")
DTYPES = ("auto", "float32", "float16", "bfloat16")
MAX_BLOCK_SIZE = 1024


def kv_bytes_per_token(num_layers: int, num_kv_heads: int, head_dim: int, dtype_bytes: int) -> int:
    """Bytes of KV cache one token occupies: K and V, for every layer, for every *KV* head.

    With grouped-query attention `num_kv_heads` is smaller than the number of query heads, and only it counts
    (Kwon et al. 2023, §3; Ainslie et al. 2023).
    """
    return 2 * num_layers * num_kv_heads * head_dim * dtype_bytes


def num_blocks_for(budget_bytes: int, block_size: int, bytes_per_token: int) -> int:
    """How many whole blocks of `block_size` tokens fit into `budget_bytes`."""
    return max(0, budget_bytes) // (block_size * bytes_per_token)


_WHOLE: tuple[tuple[str, int, int | None], ...] = (
    ("block_size", 1, MAX_BLOCK_SIZE), ("num_blocks", 1, None), ("kv_cache_memory", 1, None), ("max_model_len", 2, None),
    ("max_num_seqs", 1, None), ("max_num_batched_tokens", 1, None), ("prefix_cache_blocks", 0, None),
    ("seed", -(1 << 63), (1 << 63) - 1),
)  # fmt: skip
_FLAGS = (
    "enable_prefix_caching", "enable_chunked_prefill", "mix_prefill_decode", "verify_prefix_hits", "enforce_eager",
    "async_scheduling",
)  # fmt: skip
_OPTIONAL = ("num_blocks", "max_model_len", "prefix_cache_blocks", "enable_prefix_caching", "verify_prefix_hits")
_WORDS = {
    "policy": POLICIES, "eviction": EVICTIONS, "kv_layout": LAYOUTS, "reservation": RESERVATIONS, "allocator": ALLOCATORS,
    "kernels": KERNELS, "dtype": DTYPES, "kv_cache_dtype": ("auto", "fp8"),
}  # fmt: skip
_BELOW_ONE = 1 - 2**-53


@dataclass(frozen=True)
class EngineConfig:
    """What an engine is told at the start. Names follow vLLM where vLLM has a name.

    Raises `ValueError` for a value outside what is allowed; the message says what is.
    """

    block_size: int = 16
    """Tokens per KV block, the unit of allocation and of prefix sharing."""
    num_blocks: int | None = None
    """Blocks in the pool. None: as many as `kv_cache_memory` (CPU) or `gpu_memory_utilization` (GPU) allow."""
    kv_cache_memory: int = 1 << 30
    """Bytes for the pool on a CPU when `num_blocks` is None."""
    gpu_memory_utilization: float = 0.9
    """Share of the card's memory this engine may use, weights included, when `num_blocks` is None."""
    max_model_len: int | None = None
    """Longest sequence, prompt and output together. None: what the model allows, at most 8192."""
    max_num_seqs: int = 256
    """Requests that may run in one step."""
    max_num_batched_tokens: int = 8192
    """Token budget of one step, decodes and prefill chunks together."""
    enable_prefix_caching: bool | None = None
    """Reuse the blocks of equal prefixes. None: on when the layout is paged."""
    enable_chunked_prefill: bool = True
    """Let a prompt be computed over several steps; off, a prompt must fit the budget in one piece."""
    mix_prefill_decode: bool = True
    """Let one step hold both prefill chunks and decodes; off, prefill steps go first."""
    watermark: float = 0.0
    """Share of the pool that admission leaves free while others run, against preemption soon after."""
    policy: str = "fcfs"
    """Which waiting request is admitted next."""
    eviction: str = "lru"
    """Which unreferenced cached block is given up first."""
    prefix_cache_blocks: int | None = None
    """Most unreferenced blocks kept for reuse. None: all that are not needed; 0: recycle at once."""
    verify_prefix_hits: bool | None = None
    """Compare tokens along the chain on a hash match. None: only when the hasher is not the built-in one."""
    kv_layout: str = "paged"
    """`paged`, or `contiguous`: one reserved extent per request, the baseline that paging replaced."""
    reservation: str = "max"
    """Contiguous only: tokens reserved per request (the vLLM paper's Orca variants)."""
    allocator: str = "buddy"
    """Contiguous only: how extents are found."""
    device: str = "auto"
    """`auto`, `cpu` or `cuda`."""
    dtype: str = "auto"
    """`auto` is float32 on a CPU, the checkpoint's own 16-bit type on a GPU."""
    kv_cache_dtype: str = "auto"
    """`auto` (the model's dtype) or `fp8` (GPU only)."""
    kernels: str = "auto"
    """`auto` is `triton` on a GPU and `reference` (plain torch) on a CPU."""
    enforce_eager: bool = False
    """No CUDA graphs: slower, and every kernel can be stepped through."""
    async_scheduling: bool = True
    """Let `run()` launch the next step before it reads the last one's tokens."""
    seed: int = 0
    """Seed of requests that bring none of their own."""

    def __post_init__(self) -> None:
        def settle(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        for name, low, high in _WHOLE:
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                settle(name, whole(name, value, low, high))
        for name in _FLAGS:
            if getattr(self, name) is not None or name not in _OPTIONAL:
                flag(name, getattr(self, name))
        share = real(
            "gpu_memory_utilization", self.gpu_memory_utilization, 0, 1, "a number above 0, at most 1", above=True
        )
        settle("gpu_memory_utilization", share)
        settle("watermark", real("watermark", self.watermark, 0, _BELOW_ONE, "a number of 0 or more, below 1"))
        for name, allowed in _WORDS.items():
            one_of(name, getattr(self, name), allowed)
        if not isinstance(self.device, str) or not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise ValueError(f"device is {shown(self.device)}; allowed: 'auto', 'cpu', 'cuda' or 'cuda:N'")
        if self.kv_layout == "contiguous" and self.enable_prefix_caching:
            raise ValueError("enable_prefix_caching needs kv_layout='paged': a contiguous extent cannot be shared")

    @property
    def prefix_caching(self) -> bool:
        """Whether the prefix cache is on, with None resolved."""
        if self.enable_prefix_caching is None:
            return self.kv_layout == "paged"
        return self.enable_prefix_caching

    def replace(self, **changes: Any) -> "EngineConfig":
        """A copy with some fields changed, validated anew. Unknown names raise `ValueError`."""
        known = [f.name for f in fields(self)]
        unknown = sorted(set(changes) - set(known))
        if unknown:
            raise ValueError(f"EngineConfig has no field {', '.join(unknown)}; it has {', '.join(known)}")
        return replace(self, **changes)

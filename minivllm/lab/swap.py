"""Swap or recompute: is a preempted request's K/V sooner carried to the host and back, or computed once more?

Arithmetic, not a measurement. Assumed: a link of one bandwidth, a fixed cost per transfer, one transfer per block, layer
and K or V (blocks lie scattered, so each is a transfer of its own), and a prefill whose time grows with the tokens alone.
(Kwon et al. 2023, §4.5 and §7.3.)
"""

from dataclasses import dataclass

from minivllm.allowed import real, whole


@dataclass(frozen=True)
class Swap:
    """A model and a machine, in bytes and seconds. The defaults are an 8B model and a PCIe 4.0 link, as assumptions.

    Raises `ValueError` for a number that is not positive.
    """

    layers: int = 32
    kv_bytes: int = 131_072  # per token, all layers
    link: float = 25e9  # bytes per second, one way
    transfer: float = 10e-6  # seconds to start one
    prefill: float = 27e-6  # seconds per token

    def __post_init__(self) -> None:
        for name in ("layers", "kv_bytes"):
            whole(name, getattr(self, name), 1)
        for name in ("link", "transfer", "prefill"):
            real(name, getattr(self, name), 0, 1e30, "a number above 0", above=True)

    def swap_seconds(self, tokens: int, block_size: int) -> float:
        """Out and back, in whole blocks."""
        blocks = -(-whole("tokens", tokens, 0) // whole("block_size", block_size, 1))
        return 2 * blocks * (2 * self.layers * self.transfer + block_size * self.kv_bytes / self.link)

    def recompute_seconds(self, tokens: int) -> float:
        """Prefill once more: blocks do not matter."""
        return whole("tokens", tokens, 0) * self.prefill

    def break_even(self) -> float:
        """The block size above which swapping is faster; infinite if the link alone is slower than prefill."""
        saved = self.prefill - 2 * self.kv_bytes / self.link  # per token
        return 4 * self.layers * self.transfer / saved if saved > 0 else float("inf")

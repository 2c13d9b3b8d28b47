"""From host to device without waiting: small arrays go through a ring of pinned buffers, one per step in flight.

A buffer may be overwritten only when the copy out of it has run. With at most one step in flight while another is being
launched, three buffers in turn are enough; a fourth is to spare.
"""

import numpy as np
import torch
from torch import Tensor

RING = 4
BYTES = 1 << 23


class Uploader:
    """Sends numpy arrays to `device`; call `next_step()` once per step."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pinned = device.type == "cuda"
        self._ring = [
            torch.empty(BYTES if self._pinned else 0, dtype=torch.uint8, pin_memory=self._pinned) for _ in range(RING)
        ]
        self._at, self._step = 0, 0

    def next_step(self) -> None:
        """Turn to the next buffer of the ring."""
        self._step, self._at = (self._step + 1) % RING, 0

    def stage(self, array: np.ndarray) -> Tensor:
        """The array in memory the device can copy from while the host goes on. On a CPU it is the same memory."""
        host = torch.from_numpy(array)
        if not self._pinned:
            return host
        end = self._at + array.nbytes
        if end > BYTES:  # a step that brings very much: a buffer of its own
            return host.pin_memory()
        staged = self._ring[self._step][self._at : end].view(host.dtype).view(host.shape)
        self._at = -(-end // 16) * 16
        return staged.copy_(host)

    def send(self, array: np.ndarray) -> Tensor:
        """The array on the device."""
        return self.stage(array).to(self.device, non_blocking=True)

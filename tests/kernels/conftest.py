"""The kernels run on the GPU if there is one, else one program after another in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from minivllm.kernels import launch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors: a second thread only waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def device() -> str:
    return "cpu" if launch.INTERPRETED else "cuda"


@pytest.fixture
def tolerance(device: str) -> dict[torch.dtype, float]:
    """Relative error allowed; the interpreter rounds bfloat16 towards zero, which costs a bit."""
    return {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 6e-3 if device == "cuda" else 1.2e-2}

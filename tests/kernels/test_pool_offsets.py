"""A block beyond 2**31 elements of the pool: 32-bit offsets would wrap into another request (or a crash).

Each case runs in a process of its own, because an interpreter that follows a wrapped offset dies.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from minivllm.kernels.launch import INTERPRETED

# SmolLM2-135M's shape: 3 key heads of 64, block 16 -> 3072 elements a block. torch.empty takes no memory until written.
SCRIPT = """
import torch
from minivllm.bench.oracle import attention, paged_step, relative_error
from minivllm.kernels.triton_ops import TritonOps
torch.set_num_threads(1)
device, far, fed = {device!r}, 699_059, {fed}
step = paged_step([(9, fed)], 9, 3, 64, 16, torch.float16, norm=False, rope=False, device=device)
expected, pool = attention(step, 1e-6)
here = int(step.batch.block_tables[0, 0])
big = torch.empty(2, far + 1, 16, 3, 64, dtype=torch.float16, device=device)
assert big[0].numel() > 2**31
big[:, far] = step.kv_layer[:, here]
step.batch.block_tables.fill_(far)
step.batch.slots.add_((far - here) * 16)
found = TritonOps().attention(step.qkv, big, None, None, 1e-6, None, step.batch)
assert relative_error(found, expected) < 1e-3
assert torch.equal(big[:, far, :9], pool[:, here, :9])
"""


@pytest.mark.parametrize("fed", [1, 3], ids=["decode", "store and prefill"])
def test_the_last_block_of_a_pool_beyond_32_bits(fed: int) -> None:
    script = SCRIPT.format(device="cpu" if INTERPRETED else "cuda", fed=fed)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]

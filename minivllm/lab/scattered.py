"""The stage of the kernel chapter: one request's keys and values, scattered over a pool full of strangers and NaN.

Every slot that request A has not written holds NaN, as fresh GPU memory may: whoever reads one unmasked, loses.
"""

import torch

from minivllm.lab.paged_kernel import Call, call

TABLE = (13, 23, 12, 3, 8, 11)
TOKENS = 22
NUM_BLOCKS, BLOCK_SIZE, Q_HEADS, KV_HEADS, HEAD_DIM = 24, 4, 4, 2, 8
SEED = 2016  # the running maximum rises on pages 0, 2 and 5, so rescaling is seen to matter


def scattered(device: torch.device | str = "cpu") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """`(q [1, 4, 8], kv_layer [2, 24, 4, 2, 8], block_tables [1, 6], context_lens [1])`: 22 tokens in six blocks."""
    draw = torch.Generator().manual_seed(SEED)
    kv = torch.randn(2, NUM_BLOCKS, BLOCK_SIZE, KV_HEADS, HEAD_DIM, generator=draw)
    q = torch.randn(1, Q_HEADS, HEAD_DIM, generator=draw)
    mine = torch.zeros(NUM_BLOCKS, BLOCK_SIZE, dtype=torch.bool)
    for position in range(TOKENS):
        mine[TABLE[position // BLOCK_SIZE], position % BLOCK_SIZE] = True
    kv[:, ~mine] = float("nan")
    tables = torch.tensor([TABLE], dtype=torch.int32)
    lens = torch.tensor([TOKENS], dtype=torch.int32)
    return q.to(device), kv.to(device), tables.to(device), lens.to(device)


def scattered_call() -> Call:
    """The launch over `scattered()`, on the CPU."""
    return call(*scattered())

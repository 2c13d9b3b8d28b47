"""An 8-bit pool: keys and values are rounded once, when they are stored, and everything after that is exact."""

import pytest
import torch

from minivllm.kernels.batch import StepBatch
from minivllm.kernels.ops import get_ops

FP8 = torch.float8_e4m3fn


@pytest.mark.parametrize(
    ("fed", "start"), [(1, 20), (5, 16), (3, 0)], ids=["decode", "chunk over a prefix", "fresh prefill"]
)
@pytest.mark.parametrize("block_size", [16, 64])
def test_attention_over_an_8_bit_pool_is_attention_over_its_rounded_numbers(fed, start, block_size):
    generator = torch.Generator().manual_seed(fed)
    kernels = get_ops(
        "cuda" if torch.cuda.is_available() else "cpu", "triton" if torch.cuda.is_available() else "interpreter"
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pool = (3 * torch.randn(2, 4, block_size, 1, 64, generator=generator)).to(FP8)
    # Numbers an 8-bit float can hold, since Triton's interpreter rounds the others wrongly, and some far beyond 448.
    qkv = torch.randn(fed, 4 * 64, generator=generator).to(FP8).float()
    qkv[:, 130::16] = 1000.0
    table = [2, 3]
    positions = torch.arange(start, start + fed, dtype=torch.int32)
    slots = torch.tensor([table[p // block_size] * block_size + p % block_size for p in positions.tolist()])
    batch = [
        StepBatch(
            positions=positions.to(where),
            slots=slots.to(where),
            query_starts=torch.tensor([0, fed], dtype=torch.int32, device=where),
            context_lens=torch.tensor([start + fed], dtype=torch.int32, device=where),
            block_tables=torch.tensor([table], dtype=torch.int32, device=where),
            max_query_len=fed,
            max_context_len=start + fed,
            logit_rows=torch.tensor([fed - 1], device=where),
        )
        for where in ("cpu", device)
    ]
    stored = pool.clone().to(device)
    found = kernels.attention(qkv.to(device), stored, None, None, 1e-6, None, batch[1])

    written = stored.flatten(1, 2)[:, slots.to(device)].float().cpu()  # [K and V, fed, 1, 64]
    given = torch.stack([qkv[:, None, 128:192], qkv[:, None, 192:]])
    assert written.abs().max() == 448.0
    assert torch.equal(written, given.clamp(-448, 448))

    read = qkv.clone()
    if start:  # over a cached prefix the new tokens too are read back from the pool
        read[:, 128:] = torch.cat([written[0, :, 0], written[1, :, 0]], dim=1)
    expected = get_ops("cpu", "reference").attention(read, pool.float(), None, None, 1e-6, None, batch[0])
    torch.testing.assert_close(found.cpu(), expected, rtol=2e-3, atol=2e-2)

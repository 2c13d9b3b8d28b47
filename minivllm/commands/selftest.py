"""One paged decode through the Triton kernels, compared with plain torch: on the GPU, or interpreted on the CPU."""

import os


def main() -> None:
    """Print one line saying where the kernels ran and how well they agree. Raises `RuntimeError` if they do not."""
    import torch

    gpu = torch.cuda.is_available()
    if not gpu:
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    from minivllm.kernels.batch import StepBatch
    from minivllm.kernels.ops import get_ops

    device = "cuda" if gpu else "cpu"
    generator = torch.Generator().manual_seed(0)
    pool = torch.randn(2, 4, 16, 1, 64, generator=generator).to(
        device
    )  # [K and V, blocks, block_size, kv_heads, head_dim]
    qkv = torch.randn(2, 4 * 64, generator=generator).to(device)  # 2 requests; 2 query heads, K and V

    def ints(*values: int) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    batch = StepBatch(
        positions=ints(20, 4), slots=ints(3 * 16 + 4, 4).long(), query_starts=ints(0, 1, 2), context_lens=ints(21, 5),
        block_tables=torch.stack([ints(2, 3), ints(0, 0)]), max_query_len=1, max_context_len=21,
        logit_rows=ints(0, 1).long(),
    )  # fmt: skip
    outputs = [
        get_ops(device, name).attention(qkv, pool.clone(), None, None, 1e-6, None, batch)
        for name in ("reference", "triton" if gpu else "interpreter")
    ]
    error = float((outputs[0] - outputs[1]).abs().max())
    where = f"on {torch.cuda.get_device_name(0)}" if gpu else "in the interpreter"
    if not error < 1e-3:
        raise RuntimeError(f"the paged decode kernel, {where}, differs from torch by {error:.2g}")
    print(f"the paged decode kernel runs {where} and agrees with torch")

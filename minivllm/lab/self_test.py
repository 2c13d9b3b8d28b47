"""Do the Triton kernels compute here what plain torch computes? Tiny tensors: seconds in the interpreter."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minivllm.lab.grading import in_short

if TYPE_CHECKING:
    from minivllm.kernels.batch import StepBatch

KERNELS = ("rms_norm", "linear_silu_mul", "attention", "sample")
TOLERANCE = 2e-2
"""Largest difference allowed: a GPU multiplies float32 matrices with 10-bit mantissas (TF32)."""
Q_HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 4, 2, 16, 4


def self_test() -> dict[str, str]:
    """Kernel -> `agrees`, or what went wrong in words, or `not run` and why. The tensors are the same every time."""
    try:
        import torch

        from minivllm.kernels import launch, triton_ops
    except ImportError as error:
        return dict.fromkeys(KERNELS, f"not run: {error}")
    from minivllm.kernels.reference import ReferenceOps

    device = "cpu" if launch.INTERPRETED else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        return dict.fromkeys(KERNELS, "not run: Triton was imported for a GPU; restart the kernel")
    found = {}
    for name, call in _calls(device).items():
        try:
            found[name] = _compare(call(triton_ops.TritonOps()), call(ReferenceOps()))
        except Exception as error:  # from compiler, driver or interpreter: whatever it is, the reader must see it
            found[name] = f"fails: {in_short(error)}"
    return found


def _calls(device: str) -> dict[str, Callable[[Any], Any]]:
    import torch

    from minivllm.kernels.batch import SamplingTensors

    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    x, weight, logits = normal(3, 32), normal(64, 32), normal(2, 50)
    qkv = normal(2, (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM)
    pool = normal(2, 8, BLOCK_SIZE, KV_HEADS, HEAD_DIM)
    calls: tuple[Callable[[Any], Any], ...] = (
        lambda ops: ops.rms_norm(x, weight[0], 1e-5),
        lambda ops: ops.linear_silu_mul(x, weight),
        lambda ops: ops.attention(qkv, pool.clone(), None, None, 1e-5, None, _two_decodes(device)),
        lambda ops: ops.sample(logits, SamplingTensors.greedy(2, device)),
    )
    return dict(zip(KERNELS, calls, strict=True))


def _two_decodes(device: str) -> "StepBatch":
    """Two requests, one new token each, with 5 and 9 tokens in blocks that lie anywhere."""
    import torch

    from minivllm.kernels.batch import StepBatch

    def ints(values: list[Any], dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    return StepBatch(
        positions=ints([4, 8]), slots=ints([2 * BLOCK_SIZE, 3 * BLOCK_SIZE], torch.int64),
        query_starts=ints([0, 1, 2]), context_lens=ints([5, 9]), block_tables=ints([[5, 2, 0], [7, 1, 3]]),
        max_query_len=1, max_context_len=9, logit_rows=ints([0, 1], torch.int64),
    )  # fmt: skip


def _compare(result: Any, expected: Any) -> str:
    worst = float((result.double() - expected.double()).abs().max())
    return "agrees" if worst <= TOLERANCE else f"differs by {worst:.2g}"

"""Norms, activation and matrix products against float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm.bench.oracle import relative_error, rms_norm
from minivllm.kernels import activation, launch, linear
from minivllm.kernels.triton_ops import TritonOps, make_ops

DEVICE = "cpu" if launch.INTERPRETED else "cuda"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1.2e-2 if launch.INTERPRETED else 6e-3}


def normal(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE).to(dtype)


@settings(max_examples=10, deadline=None)
@given(rows=st.integers(1, 5), hidden=st.integers(1, 300), dtype=st.sampled_from(DTYPES))
def test_norms(rows: int, hidden: int, dtype: torch.dtype) -> None:
    ops = TritonOps()
    x, residual, weight = (normal(rows, hidden, dtype=dtype) for _ in range(3))
    assert relative_error(ops.rms_norm(x, weight[0], 1e-6), rms_norm(x, weight[0], 1e-6)) < TOLERANCE[dtype]
    normed, total = ops.add_rms_norm(x, residual, weight[0], 1e-6)
    assert relative_error(total, x.double() + residual.double()) < TOLERANCE[dtype]
    assert relative_error(normed, rms_norm(total, weight[0], 1e-6)) < TOLERANCE[dtype]


def test_a_norm_of_large_fp16_values_does_not_overflow() -> None:
    x = torch.full((1, 64), 3000.0, dtype=torch.float16, device=DEVICE)
    assert torch.equal(TritonOps().rms_norm(x, torch.ones_like(x[0]), 1e-6), torch.ones_like(x))


@settings(max_examples=16, deadline=None)
@given(
    rows=st.sampled_from([1, 2, 16, 17, 40]),
    outputs=st.integers(1, 70),
    inner=st.sampled_from([16, 40, 64, 200]),
    dtype=st.sampled_from(DTYPES),
)
def test_linear_and_gated_linear(rows: int, outputs: int, inner: int, dtype: torch.dtype) -> None:
    x, weight = normal(rows, inner, dtype=dtype), normal(2 * outputs, inner, dtype=dtype) * inner**-0.5
    bias = normal(2 * outputs, dtype=dtype)
    wide = x.double() @ weight.double().T
    assert relative_error(linear.linear(x, weight), wide) < TOLERANCE[dtype]
    assert relative_error(linear.linear(x, weight, bias), wide + bias.double()) < TOLERANCE[dtype]
    gate, up = wide.chunk(2, dim=-1)
    assert relative_error(linear.linear_silu_mul(x, weight), F.silu(gate) * up) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_activation_alone(dtype: torch.dtype) -> None:
    gate_up = normal(3, 2 * 50, dtype=dtype)
    gate, up = gate_up.double().chunk(2, dim=-1)
    assert relative_error(activation.silu_mul(gate_up), F.silu(gate) * up) < TOLERANCE[dtype]


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(ValueError, match="float64"):
        launch.compute_dtype(torch.float64)


def test_the_interpreter_must_be_chosen_before_triton_is_imported() -> None:
    if launch.INTERPRETED:
        make_ops(interpret=True)
    else:
        with pytest.raises(RuntimeError, match="TRITON_INTERPRET"):
            make_ops(interpret=True)

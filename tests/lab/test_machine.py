"""Is this machine ready: what it says of a machine that is not, and the kernels' self-test."""

import pytest

from minivllm.lab import self_test as kernels
from minivllm.lab.machine import NEEDED, Machine, look

GOOD = Machine((3, 12), "Linux x86_64", 2, 8.0, dict.fromkeys(NEEDED, "1.0"))


def test_a_good_machine_has_no_problems():
    assert GOOD.problems == []


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Machine((3, 9), versions=GOOD.versions), "Python 3.9 is not among 3.11, 3.12, 3.13"),
        (Machine((3, 12), versions=GOOD.versions | {"torch": None}), "torch not found by this kernel: run `make lab`"),
        (Machine((3, 12), versions=GOOD.versions, memory_gib=2.0), "2.0 GiB of memory, 4 are needed"),
    ],
)
def test_each_problem_is_named_with_its_remedy(bad, words):
    (problem,) = bad.problems
    assert words in problem


def test_what_is_here_is_reported():
    here = look()
    assert here.problems == []
    assert "torch" in str(here)


def test_all_kernels_agree_with_plain_torch_here():
    assert kernels.self_test() == dict.fromkeys(kernels.KERNELS, "agrees")


def test_a_kernel_that_computes_something_else_or_raises_is_seen(monkeypatch):
    from minivllm.kernels.triton_ops import TritonOps

    monkeypatch.setattr(TritonOps, "rms_norm", lambda self, x, weight, eps: x)
    monkeypatch.setattr(TritonOps, "linear_silu_mul", lambda self, x, weight: 1 / 0)
    found = kernels.self_test()
    assert found["rms_norm"].startswith("differs by")
    assert found["linear_silu_mul"] == "fails: ZeroDivisionError: division by zero"

"""The kernel stepper: what it shows is what the kernel computed, line by line, and what it touched."""

import json
import re
from base64 import b64decode

import numpy as np
import pytest

pytest.importorskip("triton")

from minivllm.kernels import reference
from minivllm.lab.kernel_trace import OutOfBounds, check_bounds, trace
from minivllm.lab.paged_kernel import attend, call, paged, source_of, variant
from minivllm.lab.scattered import TABLE, scattered, scattered_call
from minivllm.viz.kernel_stepper import FAULTS, KernelStepper


@pytest.fixture(scope="module")
def stepper():
    return KernelStepper()


@pytest.fixture(autouse=True)
def rewind(request):
    if "stepper" in request.fixturenames:
        stepper = request.getfixturevalue("stepper")
        stepper.fault, stepper.tick = "", 0


def test_the_kernel_equals_the_gathered_oracle_in_every_head():
    q, kv, tables, lens = scattered()
    assert np.allclose(attend(paged, q, kv, tables, lens), reference.decode_rows(q, kv, tables, lens), atol=1e-5)


def test_a_head_size_that_is_no_power_of_two_is_refused():
    q, kv, tables, lens = scattered()
    with pytest.raises(ValueError, match="head_dim is 6; this kernel allows powers of two"):
        call(q[..., :6], kv[..., :6], tables, lens)


def test_a_trace_reads_the_pages_in_table_order_and_only_the_program_asked_for():
    found = trace(paged, scattered_call(), (0, 1))
    assert [step.made["b"] for step in found.steps if "b" in step.made] == list(TABLE)
    assert {step.made["head"] for step in found.steps if "head" in step.made} == {1}
    assert found.outside == ()


def test_a_trace_leaves_the_launch_and_the_interpreter_as_they_were():
    launch = scattered_call()
    launch.out.fill_(7.0)
    trace(paged, launch)
    assert bool((launch.out == 7.0).all())
    assert bool(attend(paged, *scattered()).isfinite().all())


def test_masked_lanes_are_counted_and_touch_nothing():
    last = [step for step in trace(paged, scattered_call()).steps if step.touched and step.touched[0].tensor == "K"][-1]
    (access,) = last.touched
    assert access.index.shape == (4, 8)
    assert (access.index[:2] >= 0).all()
    assert (access.index[2:] == -1).all()


def test_an_access_outside_its_tensor_is_named():
    wrong = variant(paged, "head // G", "head")
    with pytest.raises(OutOfBounds, match=r"touches 8 addresses outside K, the first at 1,536 of 1,536"):
        check_bounds(wrong, scattered_call())
    check_bounds(paged, scattered_call())


def test_a_variant_that_changes_nothing_is_refused():
    with pytest.raises(ValueError, match="holds 'no such piece' 0 times"):
        variant(paged, "no such piece", "")


def test_it_stands_before_the_first_line_and_steps_to_the_last(stepper):
    assert (stepper.tick, stepper.page) == (0, 0)
    stepper.step(1000)
    assert stepper.tick == stepper.edge
    assert "the output of A, head 3" in stepper.sentence
    stepper.back()
    assert stepper.page == stepper.pages == 6


def test_a_page_is_shown_at_its_last_line(stepper):
    stepper.page = 6
    assert stepper.values["m"] == stepper.values["m2"]
    assert stepper.values["b"] == TABLE[5]
    assert stepper.values["s"][2:].tolist() == [-np.inf, -np.inf]


def test_every_line_has_a_sentence_and_pages_say_which_block(stepper):
    steps = stepper.story["runs"][""]["steps"]
    assert all(step["say"].endswith((".", "!")) for step in steps)
    assert [re.search(r"block (\d+)", step["say"])[1] for step in steps if "b" in step["made"]] == [
        str(b) for b in TABLE
    ]


@pytest.mark.parametrize(
    ("fault", "says"),
    [("", "equals dense"), ("mask V off", "8 NaN of 8"), ("rescale off", "differs"), ("fp16 sums", "differs by")],
)
def test_a_fault_shows_in_the_result(stepper, fault, says):
    stepper.fault = fault
    assert says.split()[0] in stepper.difference
    assert bool(np.isnan(stepper.traces[fault].out[0, 3]).any()) == ("NaN" in says)


def test_the_nan_of_an_unmasked_value_is_told_on_its_page(stepper):
    stepper.fault = "mask V off"
    told = [step for step in stepper.story["runs"]["mask V off"]["steps"] if "NaN that nobody wrote" in step["say"]]
    assert [step["page"] for step in told] == [6]


def test_an_unknown_fault_is_refused_and_nothing_changes(stepper):
    with pytest.raises(ValueError, match="'mask V off'"):
        stepper.fault = "gremlins"
    assert stepper.fault == ""


def test_faults_that_a_kernel_does_not_have_are_left_out():
    other = variant(paged, "tl.exp(m - m2)", "tl.exp(m) / tl.exp(m2)")
    assert "rescale off" not in KernelStepper(other, faults=FAULTS).traces


def test_its_story_is_json_that_browsers_read(stepper):
    text = json.dumps(stepper.story, allow_nan=False)
    assert len(text) < 200_000
    assert "−∞" in stepper.story["runs"][""]["steps"][3]["made"].values()


def test_the_snapshot_is_deterministic_and_has_every_page(stepper):
    plain, html = stepper.static().values()
    assert KernelStepper().static() == stepper.static()
    assert [line.split()[1] for line in plain.splitlines()[2:]] == [str(block) for block in TABLE]
    svg = b64decode(re.search(r"base64,([^\"]+)", html)[1]).decode()
    assert svg.count("<circle") == 22
    assert "Page" not in svg


def test_the_code_shown_is_the_kernels_own(stepper):
    code = stepper.story["runs"][""]["code"]
    assert [line.strip() for line in code] == [
        line.strip().replace("tl.", "") for line in source_of(paged).splitlines()[3:]
    ]
    assert [code[n].split("=")[0].strip() for n in stepper.story["runs"][""]["own"]] == ["a", "l", "acc"]

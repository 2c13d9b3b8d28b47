"""The roofline by hand: what a decode step of Qwen3-0.6B has to read on one H200, and how long that takes at least."""

import json
import re
from base64 import b64decode
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm.bench import shapes
from minivllm.model.spec import ModelSpec
from minivllm.viz import Roofline, bundle
from minivllm.viz.roofline_lanes import one_by_one, one_in_flight
from minivllm.viz.roofline_model import Roof, amount, headline, ms

RECORDED = json.loads((Path(__file__).parents[2] / "assets/recorded/h200-engine.json").read_text())["rows"]
STEPS = [row for row in RECORDED if row["what"] == "decode step"]
MEASURED = [
    (1, 640, 0.842),
    (16, 640, 1.224),
    (64, 640, 2.064),
    (256, 640, 5.927),
]  # one run, whatever is recorded since
H200 = {"bandwidth": 4.551e12, "compute": 767.05e12}
QWEN = {"attention": 4 * 28 * 16 * 128, "head": 2 * 151936 * 1024}
ROOF = Roof(1.192e9, 114_688, 1.192e9, **H200, **QWEN)

batches, contexts = st.integers(1, 1024), st.integers(64, 131_072)


def make(**more):
    given = {"measured": MEASURED, "prefill": (1530, 1500), "predicted": 1.0, "steps": (2.05, 0.85), **H200, **QWEN}
    return Roofline(1.192e9, 114_688, 1.192e9, **{**given, **more})


@pytest.fixture
def roofline():
    return make(source="Recorded on one NVIDIA H200.", title="Roofline of one H200")


def test_a_step_of_64_requests_must_read_5_89_gigabytes():
    read = 1.192e9 + 64 * 640 * 114_688
    assert ROOF.bytes_read(64, 640) == read == pytest.approx(5.89e9, rel=1e-3)
    assert ROOF.limit_ms(64, 640) == read / 4.551e12 * 1e3 == pytest.approx(1.294, abs=5e-4)
    assert ROOF.intensity(64, 640) == 64 * (1.192e9 + 229_376 * 640) / read
    assert ROOF.bound(64, 640) == "memory"


def test_the_numbers_of_the_model_follow_from_its_shape():
    spec = ModelSpec.from_hf(shapes.SHAPES["qwen3-0.6b"])
    assert shapes.bytes_of_weights(spec) == pytest.approx(1.192e9, rel=1e-3)
    assert shapes.kv_bytes(spec) == 114_688


@pytest.mark.parametrize("row", STEPS, ids=lambda row: f"{row['batch']}")
def test_the_limits_are_those_of_the_recorded_run(row):
    (read,) = (row["read GB/s"] for row in RECORDED if row["what"] == "ceilings")
    roof = Roof(1.192e9, 114_688, 1.192e9, **{**H200, "bandwidth": read * 1e9}, **QWEN)
    assert roof.limit_ms(row["batch"], row["context"]) == pytest.approx(row["limit ms"], abs=2e-3)


@given(batches, contexts)
def test_no_number_of_requests_passes_what_infinitely_many_would_reach(batch, context):
    assert ROOF.intensity(batch, context) < ROOF.intensity(batch + 1, context) < ROOF.never_pass(context)
    assert ROOF.never_pass(context) == pytest.approx(ROOF.intensity(10**12, context))


@given(batches, contexts, st.floats(0.1, 40))
def test_the_limit_is_the_slower_of_reading_and_computing(batch, context, faster):
    roof = ROOF._replace(bandwidth=ROOF.bandwidth * faster)
    work = roof.decode(batch, context)
    seconds = {"memory": work.moved / roof.bandwidth, "compute": work.flops / roof.compute}
    assert roof.limit_ms(batch, context) == 1e3 * max(seconds.values())
    assert seconds[roof.bound(batch, context)] == pytest.approx(max(seconds.values()))
    assert roof.speed(work) == pytest.approx(work.flops / max(seconds.values()))


@given(contexts, st.floats(0.1, 40))
def test_the_ridge_is_reached_at_a_number_of_requests_or_never(context, faster):
    roof = ROOF._replace(bandwidth=ROOF.bandwidth * faster)
    meets = roof.requests_at_ridge(context)
    assert (meets is None) == (roof.never_pass(context) <= roof.ridge)
    if meets is not None and meets < 1e6:
        assert roof.decode(meets, context).intensity == pytest.approx(roof.ridge)


@given(st.integers(1, 4000), st.data())
def test_a_prefix_hit_saves_computing_and_never_costs_any(tokens, data):
    hit = data.draw(st.integers(0, tokens - 1))
    cold, warm = ROOF.prefill(tokens), ROOF.prefill(tokens, hit)
    assert warm.moved == cold.moved and warm.flops <= cold.flops
    pairs = sum(range(hit + 1, tokens + 1))
    assert warm.flops == pytest.approx((tokens - hit) * (ROOF.flops - ROOF.head) + ROOF.head + ROOF.attention * pairs)


def test_a_hit_moves_a_prefill_from_the_flat_roof_to_the_slope(roofline):
    prefill = roofline.picture["prefill"]
    assert prefill["cold"][0] > ROOF.ridge > prefill["warm"][0]
    assert (prefill["hit"], prefill["change"]) == ("1,500 of them hit:", "2.11 → 0.30 ms")


def test_the_headline_is_a_share_only_where_exactly_this_step_was_measured(roofline):
    assert roofline.picture["headline"] == "63 % of the limit"
    assert roofline.sentence == (
        "64 requests of 640 tokens: one step must read 5.89 GB, so it cannot take less than 1.29 ms. Measured: 2.06. "
        "Adding requests moves the point right, but never to the ridge: each brings its own K and V to read."
    )
    roofline.set("batch", 65)
    assert (
        roofline.picture["headline"] == f"{ms(roofline.limit_ms)} ms at least" and "Measured" not in roofline.sentence
    )
    assert roofline.picture["here"]["measured"] is None


def test_what_was_measured_is_not_held_against_another_bandwidth(roofline):
    roofline.set("bandwidth", 9.102e12)
    assert roofline.measured_ms is None and all(p["measured"] is None for p in roofline.picture["points"])
    assert roofline.picture["source"] == "What was measured belongs to 4.55 TB/s and is not shown here."
    roofline.set("bandwidth", 4.551e12)
    assert roofline.measured_ms == 2.064 and roofline.picture["source"] == "Recorded on one NVIDIA H200."


def test_a_short_context_and_a_fast_memory_bring_decode_to_the_flat_roof(roofline):
    roofline.set("context", 64)
    roofline.set("batch", 16)
    roofline.set("bandwidth", 4 * 4.551e12)
    assert "The ridge comes at 56 requests" in roofline.sentence and roofline.picture["roof"]["never"] is None
    roofline.set("batch", 1024)
    assert roofline.bound == "compute" and "one step must compute 1.24 TFLOP" in roofline.sentence


def test_the_prediction_is_set_against_the_step_it_was_made_for(roofline):
    assert roofline.picture["rows"] == [
        ("limit", "1.29 ms", "49.5k tok/s"), ("you predicted", "1.00 ms", "off by 0.29"), ("measured", "2.06 ms", "31.0k tok/s"),
    ]  # fmt: skip
    roofline.set("context", 64)
    assert roofline.picture["rows"][1] == ("you predicted", "1.00 ms", "for 64 of 640")
    assert make(predicted=1.294).picture["rows"][1][2] == "as the limit"


@given(st.floats(0.01, 50), st.floats(0.01, 50))
def test_overlap_hides_the_shorter_of_gpu_and_host(gpu, host):
    slow, fast = one_by_one(gpu, host), one_in_flight(gpu, host)
    for boxes, rows, period in ((slow, (0, 1), gpu + host), (fast, (2, 3), max(gpu, host))):
        for row in rows:
            lane = sorted((b.start, b.end) for b in boxes if b.row == row)
            assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(lane)), "two things at once"
        starts = {b.words: b.start for b in boxes if b.words.startswith("step")}
        assert starts["step 3"] - starts["step 2"] == pytest.approx(period)
    assert any(b.idle for b in slow)
    if gpu >= host:
        assert not any(b.idle for b in fast)


def test_every_measured_step_is_a_stop_of_the_sliders_and_messages_choose_stops(roofline):
    batch, context, bandwidth = roofline.picture["sliders"]
    assert {"1", "16", "64", "256", "1,024"} <= set(batch["stops"]) and context["stops"][context["at"]] == "640"
    assert (batch["stops"][0], context["stops"][0], context["stops"][-1]) == ("1", "64", "131,072")
    assert batch["along"] == sorted(batch["along"]) and bandwidth["stops"][bandwidth["at"]] == "4.55 TB/s"
    roofline.handle({"type": "set", "name": "batch", "at": batch["stops"].index("256")})
    assert (roofline.error, roofline.batch, roofline.picture["headline"]) == ("", 256, "74 % of the limit")
    roofline.handle({"type": "set", "name": "batch", "at": 999})
    assert (
        roofline.error.startswith("ValueError: at is 999; allowed: a whole number from 0 to") and roofline.batch == 256
    )


@given(batches, contexts)
def test_any_step_can_be_drawn_and_said(batch, context):
    view = make()
    view.set("batch", batch)
    view.set("context", context)
    x, y = view.picture["axes"]["x"], view.picture["axes"]["y"]
    for point in [*view.picture["points"], view.picture["here"]]:
        assert x[0] < point["x"] < x[1] and y[0] < point["y"] < y[1]
    assert json.dumps(view.picture) and view.sentence.endswith(".") and "  " not in view.sentence


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [("batch", 0, "from 1 to 1024"), ("context", 63, "from 64 to 131072"), ("context", 1.5, "a whole number"),
     ("bandwidth", 1e14, "from 5.689e+11 to 1.82e\\+13"), ("colour", 1, "it can be batch, context, bandwidth")],
)  # fmt: skip
def test_what_cannot_be_shown_is_refused_by_name(roofline, name, value, allowed):
    with pytest.raises(ValueError, match=allowed.replace("e+11", "e\\+11")):
        roofline.set(name, value)
    assert (roofline.batch, roofline.context, roofline.bandwidth) == (64, 640, 4.551e12)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"bandwidth": 0}, "bandwidth is 0; allowed: a number above 0"), ({"prefill": (10, 10)}, "from 0 to 9"),
     ({"measured": [(1, 640, -1)]}, "a time in measured is -1"), ({"steps": (1, 0)}, "a time in steps is 0"),
     ({"predicted": "fast"}, "predicted is 'fast'"), ({"batch": 2000}, "from 1 to 1024")],
)  # fmt: skip
def test_a_number_that_means_nothing_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        make(**given)


def test_a_small_machine_is_drawn_in_its_own_units():
    laptop = Roofline(2.7e8, 23_040, 2.7e8, bandwidth=21e9, compute=0.6e12, batch=8, context=512)
    assert laptop.picture["axes"]["unit"] == "GFLOP/s" and laptop.picture["sliders"][2]["value"] == "21.0 GB/s"
    assert repr(laptop) == "Roofline(8 requests of 512 tokens: 17.35 ms at least, bound by memory)"
    assert (laptop.picture["lanes"], laptop.picture["prefill"], laptop.picture["source"]) == (None, None, "")


def test_words_for_numbers_keep_the_digits_that_matter():
    assert [ms(v) for v in (0.0123, 0.5, 12.345, 1710.2)] == ["0.012", "0.50", "12.35", "1,710"]
    assert [amount(v) for v in (5.89e9, 767.05e12, 21e9, 12)] == ["5.89 G", "767 T", "21.0 G", "12.0 "]
    assert headline(1.0, 2.0) == "50 % of the limit" and headline(0.278, None) == "0.28 ms at least"


def test_the_static_picture_is_deterministic_and_escapes_its_words(roofline):
    plain, html = roofline.static().values()
    assert plain.splitlines()[1:] == [
        "limit            1.29 ms  49.5k tok/s",
        "you predicted    1.00 ms  off by 0.29",
        "measured         2.06 ms  31.0k tok/s",
        "Recorded on one NVIDIA H200.",
    ]
    assert 'alt="63 % of the limit. 64 requests of 640 tokens' in html
    odd = make(source="<b>&", title="<i>")
    assert odd.static() == make(source="<b>&", title="<i>").static()
    svg = b64decode(re.search(r"base64,([^\"]+)", odd.static()["text/html"])[1]).decode()
    assert "&lt;b&gt;&amp;" in svg and "<b>" not in svg and "<i>" not in svg


def test_text_reaches_the_page_only_as_text():
    module = bundle.module("roofline")
    assert set(re.findall(r"\.innerHTML = ([^;]+);", module)) <= {'GLYPHS[kind] || ""', "GLYPHS[kind]"}
    assert module.count("export default") == 1
    assert set(re.findall(r"https?://[\w./]+", module)) <= {"http://www.w3.org/2000/svg"}

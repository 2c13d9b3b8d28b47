"""K and V step by step, and the curve of block sizes: what they say is what was measured."""

import base64
import re
from xml.etree import ElementTree

import pytest

from minivllm.viz.kv_growth import KVGrowth
from minivllm.viz.trade_off import trade_off

PROMPT, NEW = 8, 40
KEPT = [(0, PROMPT), *((PROMPT + i, 1) for i in range(NEW - 1))]
LOST = [(0, PROMPT + i) for i in range(NEW)]
DROPPED = [row if at != 32 else (0, 40) for at, row in enumerate(KEPT)]


def growth(**rows):
    return KVGrowth({name.replace("_", " "): steps for name, steps in rows.items()}, ["<b>"] * 48, 46_080, title="t")


def test_a_step_says_what_is_computed_again_and_what_is_read():
    view = growth(without_a_cache=LOST, with_a_cache=KEPT)
    view.tick = 14
    assert view.sentence == (
        "Step 14 writes “<b>”. Without a cache: 21 computed, 20 of them again. "
        "With a cache: 1 computed, 20 read from the cache."
    )
    view.back(99)
    assert (view.tick, view.sentence) == (0, "Nothing is computed yet; the prompt has 8 tokens.")
    view.step(99)
    assert view.tick == view.edge == NEW


def test_totals_are_the_square_and_the_line():
    view = growth(without_a_cache=LOST, with_a_cache=KEPT)
    assert [run.so_far(NEW) for run in view.runs] == [1100, 47]
    assert [run.again_in_all for run in view.runs] == [1053, 0]
    assert view.runs[0].kept == [0] * (NEW + 1)
    assert view.runs[1].kept[-1] == 47


def test_a_lost_cache_costs_one_row():
    view = growth(dropped=DROPPED)
    assert [run.again_in_all for run in view.runs] == [39]
    assert view.runs[0].kept[31:35] == [38, 0, 40, 41]


def test_the_static_picture_is_well_formed_and_escapes_the_text():
    shown = growth(without_a_cache=LOST, with_a_cache=KEPT).static()
    assert "47 computed, 46 of them again" in shown["text/plain"]
    assert "<b>" not in shown["text/html"].split("src=")[0].replace("&lt;b&gt;", "")
    ElementTree.fromstring(base64.b64decode(re.search(r"base64,([^\"]+)", shown["text/html"])[1]))


def test_runs_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="the same number in each"):
        growth(a=KEPT, b=KEPT[:-1])


def test_the_curve_holds_the_numbers_and_a_prediction():
    figure = trade_off([1, 16], [100.0, 98.7], [1023, 64], {16: 60.0})
    assert list(figure.data[0].y) == [100.0, 98.7]
    assert (list(figure.data[2].x), list(figure.data[2].y)) == (["16"], [60.0])
    with pytest.raises(ValueError, match="as many of each"):
        trade_off([1], [1.0, 2.0], [1])

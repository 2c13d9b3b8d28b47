"""The harness itself: a click in the browser reaches Python, and what goes wrong on a page is not missed."""

import pytest

COUNTER = """
import ipywidgets as widgets
clicks = 0
button = widgets.Button(description="Count")
def count(_):
    global clicks
    clicks += 1
    button.description = f"Counted {clicks}"
button.on_click(count)
button.add_class("counter")
button
"""


def test_a_click_reaches_python_and_its_answer_reaches_the_page(open_cells):
    lab = open_cells("counter", ["print('before')", COUNTER])
    lab.run_all()
    lab.page.locator("button.counter").click()
    lab.page.locator("button.counter", has_text="Counted 1").wait_for()
    assert lab.python("print(clicks)") == "1"
    assert lab.screenshot("counter").stat().st_size > 1000
    assert lab.screenshot("counter", ".counter", dark=True).exists()


def test_a_prediction_is_typed_kept_and_revealed(open_cells):
    cells = ["from minivllm.lab import predict, reveal\npredict('00.test', 'How many?', unit='%')"]
    lab = open_cells("predict", cells)
    lab.run_all()
    field = lab.page.locator(".minivllm-predict input")
    field.fill("60")
    field.press("Enter")
    lab.page.locator(".minivllm-predict", has_text="you said 60 %").wait_for()
    lab.screenshot("predict", ".jp-Notebook")
    lab.screenshot("predict", ".jp-Notebook", dark=True)
    assert lab.python("reveal('00.test', 83, '%')") == "you said 60 %; it is 83 %: off by 23 %"


def test_a_kernel_ends_with_its_page(open_cells, server, pages):
    open_cells("short", ["1"])
    pages.pop().close()
    assert server.ask("/api/kernels") == []


def test_a_cell_that_raises_fails_the_run(open_cells):
    lab = open_cells("raises", ["1 / 0"])
    with pytest.raises(AssertionError, match="ZeroDivisionError: division by zero"):
        lab.run_all()


def test_a_script_error_and_a_request_to_the_outside_fail_the_page(open_cells, pages):
    lab = open_cells("bad", ["1"])
    pages.remove(lab)
    lab.page.evaluate("() => { setTimeout(() => { throw new Error('broken view') }, 0) }")
    lab.page.evaluate("() => fetch('http://192.0.2.1/x', {mode: 'no-cors'}).catch(() => null) && null")
    lab.page.wait_for_timeout(300)
    with pytest.raises(AssertionError, match="broken view"):
        lab.close()
    assert lab.outside == ["http://192.0.2.1/x"]

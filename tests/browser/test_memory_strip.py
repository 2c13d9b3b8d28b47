"""The memory strips in a real JupyterLab: they step, jump and begin again, and say what Python says."""

MAKE = """
from minivllm.viz import MemoryStrip
asked = [(40, 20), (30, 60), (50, 14), (16, 16), (24, 40), (55, 50), (20, 30), (33, 33)] * 3
strip = MemoryStrip(asked)
strip.predict("Max", 60, tick=3)
strip.show()
"""


def settle(lab, tick):
    lab.page.locator(".ms .head .t", has_text=f"Tick {tick}of").wait_for()
    lab.page.wait_for_timeout(60)
    assert lab.python("print(strip.sentence)") in lab.page.locator(".ms output").inner_text()


def test_the_strips_step_jump_and_begin_again(open_cells):
    lab = open_cells("strips", [MAKE], width=1640, height=1100)
    lab.run_all()
    lab.page.locator(".ms .row").first.wait_for()
    step = lab.page.get_by_role("button", name="step", exact=True)
    for tick in range(1, 4):
        step.click()
        settle(lab, tick)
    assert lab.page.locator(".ms .row").count() == 4
    assert lab.page.locator(".ms svg .why").count() == 3
    said = lab.page.locator(".ms .sums", has_text="you said 60 %, off by")
    assert said.count() == 1
    lab.page.get_by_role("button", name="back", exact=True).click()
    settle(lab, 2)
    assert said.count() == 0  # the prediction was about tick 3
    assert lab.python("print(strip.tick, strip.edge)") == "2 3"
    lab.page.get_by_role("radio", name="256").click()
    lab.page.locator(".ms .rule", has_text="256 slots for everyone").wait_for()
    settle(lab, 2)
    assert lab.page.locator("img.mv-snapshot").is_hidden()
    lab.python("strip.goto(18)")
    settle(lab, 18)
    lab.screenshot("memory-strip", ".ms")
    lab.screenshot("memory-strip", ".ms", dark=True)

"""Chapters 00, 01 and 03 in a real JupyterLab: they run, their widgets move, and they say what Python knows."""

import re

import pytest
from lab_page import eventually

TALL = 2000  # a whole view fits, so that its picture is whole too


def chapter(open_chapter, number, **size):
    """The chapter, run to its end, with its first widget drawn."""
    lab = open_chapter(number, **{"height": TALL, **size})
    lab.run_all()
    lab.page.locator(".mv").first.wait_for()
    return lab


def press(lab, selector, *keys):
    lab.page.locator(selector).first.click(position={"x": 3, "y": 3})
    for key in keys:
        lab.page.keyboard.press(key)


def at_tick(lab, tick):
    lab.page.locator(".ev .head .t", has_text=re.compile(rf"Tick {tick}\s*of")).first.wait_for()


def spoken(lab):
    return lab.page.locator(".ev output.spoken").first.text_content()


def told(lab, expression, value):
    assert lab.python(f"print({expression})") == value


def agrees(lab, view="view"):
    """The tick that is shown, the sentence that is read aloud and the blocks drawn in use are those of Python."""

    def same():
        assert (
            lab.python(f"print({view}.tick)")
            == lab.page.locator(".ev .head .t").first.text_content().split()[1].split("of")[0]
        )
        assert lab.python(f"print({view}.sentence)") in spoken(lab)
        used = lab.page.evaluate(
            "() => document.querySelector('.ev .grid').querySelectorAll('[data-block].used').length"
        )
        assert lab.python(f"print({view}.snapshot.used)") == str(used)

    eventually(same)


def shots(lab, name, selector):
    lab.page.locator(selector).first.scroll_into_view_if_needed()
    for dark in (False, True):
        assert lab.screenshot(name, selector, dark=dark).stat().st_size > 1000
    return lab


def test_chapter_00_the_tour_steps_goes_back_and_runs_on(open_chapter):
    lab = chapter(open_chapter, "00")
    at_tick(lab, 6)  # where the last cell of the tour has left it
    agrees(lab)
    press(lab, ".ev", "ArrowLeft", "ArrowLeft", "ArrowLeft")
    at_tick(lab, 3)
    agrees(lab)
    assert lab.python("print(engine.tick)") == "8"
    for tick in range(4, 9):
        lab.page.get_by_role("button", name="step", exact=True).first.click()
        at_tick(lab, tick)
    assert "A finished" in spoken(lab)
    press(lab, ".ev", "Home")
    at_tick(lab, 0)
    press(lab, ".ev", "End")
    at_tick(lab, 8)
    agrees(lab)
    lab.python("view.tick = 3")
    at_tick(lab, 3)
    shots(lab, "chapter-00-tour", ".ev")
    lab.page.locator(".minivllm-predict input").first.fill("15")
    lab.page.locator(".minivllm-predict input").first.press("Enter")
    lab.page.locator(".minivllm-predict", has_text="you said 15 tokens per second").wait_for()


def test_chapter_01_the_triangles_step_by_button_key_and_python(open_chapter):
    lab = chapter(open_chapter, "01")
    growth = lab.page.locator(".kvgrowth").first
    assert "47 computed, 46 of them again" in growth.locator("output").text_content()
    for _ in range(5):
        growth.get_by_role("button", name="back", exact=True).click()
    press(lab, ".kvgrowth", "ArrowRight", "ArrowRight")
    growth.locator(".t", has_text="Step 37").wait_for()
    eventually(lambda: told(lab, "growth.tick", "37"))
    assert lab.python("print(growth.sentence)") == growth.locator("output").text_content()
    assert growth.locator(".row.future").count() == 2 * 3
    lab.python("growth.tick = 14")
    growth.locator(".t", has_text="Step 14").wait_for()
    assert growth.locator(".note").first.text_content() == "203 computed so far · nothing kept"
    press(lab, ".kvgrowth", "Home")
    growth.locator(".t", has_text="Before").wait_for()
    assert growth.get_by_role("button", name="back", exact=True).is_disabled()
    lab.python("growth.tick = 14")
    shots(lab, "chapter-01-growth", ".kvgrowth")
    shots(lab, "chapter-01-loss", ".kvgrowth >> nth=1")


def test_chapter_03_block_size_is_changed_live_in_the_view(open_chapter):
    lab = chapter(open_chapter, "03")
    at_tick(lab, int(lab.python("print(view.edge)")))  # the view follows an engine that runs to its end
    lab.python("view.tick = 10")
    at_tick(lab, 10)
    assert "block_size changed" in spoken(lab)
    press(lab, ".ev", "ArrowLeft")
    at_tick(lab, 9)
    assert "block_size" not in spoken(lab)
    agrees(lab)
    shots(lab, "chapter-03-stripes", ".ev")
    press(lab, ".ev", "End")
    lab.python("engine.add(list(range(300, 330)), greedy(20)); view.step(2)")
    lab.page.get_by_role("radio", name="16", exact=True).click()
    lab.page.locator(".ev [role=radio][aria-checked=true]", has_text="16").wait_for()
    assert lab.python("print(engine.config.block_size, engine.config.num_blocks)") == "16 6"
    lab.page.get_by_role("button", name="step", exact=True).first.click()
    lab.page.locator(".ev output.spoken", has_text="block_size changed").first.wait_for(state="attached")
    agrees(lab)
    shots(lab, "chapter-03-live", ".ev")
    lab.page.locator(".js-plotly-plot").first.wait_for()
    shots(lab, "chapter-03-curve", ".js-plotly-plot")


@pytest.mark.parametrize("width", [800])
def test_chapter_03_fits_a_narrow_window(open_chapter, width):
    lab = chapter(open_chapter, "03", width=width)
    wide = lab.page.evaluate("() => { const v = document.querySelector('.ev'); return v.scrollWidth - v.clientWidth }")
    assert wide <= 1
    lab.screenshot(f"chapter-03-{width}", ".ev")

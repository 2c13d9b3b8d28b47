"""The roofline in a real JupyterLab: sliders and the ringed point choose, and the picture says what Python computes."""

from lab_page import eventually

MAKE = """
from minivllm.viz import Roofline
roofline = Roofline(
    1.192e9, 114_688, 1.192e9, bandwidth=4.551e12, compute=767.05e12, attention=4 * 28 * 16 * 128,
    head=2 * 151936 * 1024, measured=[(1, 640, 0.842), (16, 640, 1.224), (64, 640, 2.064), (256, 640, 5.927)],
    prefill=(1530, 1500), predicted=1.0, steps=(2.05, 0.85), source="Recorded on one NVIDIA H200, 2026-11-29.",
    title="Roofline of one H200, Qwen3-0.6B",
)
roofline.show()
"""
ODD = """
from minivllm.viz import Roofline
roofline = Roofline(2.7e8, 23_040, 2.7e8, bandwidth=21e9, compute=0.6e12, batch=1, context=512, steps=(2, 3.5),
                    measured=[(1, 512, 40)], source="<b>a laptop</b>", title="<i>SmolLM2</i>")
roofline.show()
"""


def opened(open_cells, name, cell=MAKE, width=1640, height=1400):
    lab = open_cells(name, [cell], width=width, height=height)
    lab.run_all()
    lab.page.locator(".rf .here").wait_for()
    told(lab)
    return lab


def told(lab):
    """The picture says what Python says, once both have settled."""

    def same():
        say = lab.python("print(f\"{roofline.picture['headline']}. {roofline.sentence}\")")
        assert say == lab.page.locator(".rf output").inner_text()

    eventually(same)


def chosen(lab, expected):
    def same():
        assert lab.python("print(roofline.batch, roofline.context, f'{roofline.bandwidth / 1e12:.2f}')") == expected

    eventually(same)
    told(lab)


def test_sliders_and_the_point_choose_what_python_computes(open_cells):
    lab = opened(open_cells, "roofline")
    page = lab.page
    assert page.locator(".rf .head .t").inner_text() == "63 % of the limit"
    assert page.locator("img.mv-snapshot").is_hidden()
    assert [words.strip() for words in page.locator(".rf td").all_inner_texts()[3:5]] == ["you predicted", "1.00 ms"]
    lab.screenshot("roofline", ".rf")
    lab.screenshot("roofline", ".rf", dark=True)

    page.get_by_role("slider", name="requests", exact=True).focus()
    page.keyboard.press("ArrowRight")
    chosen(lab, "80 640 4.55")
    page.keyboard.press("End")
    chosen(lab, "1024 640 4.55")
    page.keyboard.press("Home")
    chosen(lab, "1 640 4.55")
    lab.screenshot("roofline-one", ".rf")

    box = page.get_by_role("slider", name="context").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    eventually(lambda: _is(lab.python("print(1000 < roofline.context < 5000)"), "True"))
    told(lab)
    page.keyboard.press("End")
    chosen(lab, "1 131072 4.55")
    page.get_by_role("slider", name="bandwidth").press("PageUp")
    chosen(lab, "1 131072 9.10")
    lab.python("roofline.set('context', 64); roofline.set('batch', 700)")
    told(lab)
    lab.screenshot("roofline-short", ".rf")
    lab.python("roofline.set('context', 640); roofline.set('batch', 64); roofline.set('bandwidth', 4.551e12)")
    told(lab)
    assert page.get_by_role("slider", name="context").get_attribute("aria-valuetext") == "640 tokens"

    ring, goal = page.locator(".rf .ring").bounding_box(), page.locator(".rf .chart .dot").nth(1).bounding_box()
    centre = [(b["x"] + b["width"] / 2, b["y"] + b["height"] / 2) for b in (ring, goal)]
    page.mouse.move(*centre[0])
    page.mouse.down()
    page.mouse.move(*centre[1], steps=8)
    page.mouse.up()
    chosen(lab, "16 640 4.55")
    page.keyboard.press("ArrowUp")
    chosen(lab, "20 640 4.55")
    assert page.evaluate("() => document.activeElement.classList.contains('here')")


def test_it_fits_narrow_pages_and_words_stay_words(open_cells):
    for width, name in ((1232, "800"), (1132, "700")):  # of the window; the widget is about as wide as it is named
        lab = opened(open_cells, f"roofline-{name}", width=width, height=1900)
        box = lab.page.locator(".rf").evaluate("el => [el.scrollWidth, el.clientWidth]")
        assert box[0] <= box[1]
        lab.screenshot(f"roofline-{name}", ".rf")
    lab = opened(open_cells, "roofline-odd", ODD)
    assert lab.page.locator(".rf .source").inner_text() == "<b>a laptop</b>"
    assert lab.page.locator(".rf h2").first.inner_text().startswith("<i>SmolLM2</i>")
    lab.screenshot("roofline-odd", ".rf")
    lab.python("roofline.handle({'type': 'set', 'name': 'batch', 'at': 99})")
    lab.page.locator(".rf .alarm", has_text="at is 99; allowed").wait_for()


def _is(value, wanted):
    assert value == wanted

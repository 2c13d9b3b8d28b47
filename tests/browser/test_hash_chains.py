"""The hash chains in a real JupyterLab: toggles, keys and the movable word show and say what Python computes."""

from lab_page import eventually

MAKE = """
from minivllm.viz import HashChains
system = "You are a careful assistant for Acme . Time : {} . Answer in one short sentence and cite your source . User :"
chains = HashChains(
    f"{system.format('14:07')} Is my order late".split(), f"{system.format('14:08')} Where is my parcel".split(),
    movable="14:08",
)
chains.show()
"""
ODD = """
from minivllm.viz import HashChains
odd = HashChains("<b> & equal </b> beginnings 'here' a-word-far-too-long-for-its-pill one two".split(),
                 "<b> & equal </b> beginnings".split())
odd.show()
"""


def told(lab, name="chains"):
    """The picture says what Python says, once both have settled."""

    def same():
        say = lab.python(f"print(f'{{{name}.pair.headline}}. {{{name}.sentence}}')")
        assert say == lab.page.locator(".hc output").inner_text()
        assert lab.page.locator(".hc .row").count() == int(lab.python(f"print(len({name}.pair.rows))"))

    eventually(same)


def states(lab):
    return lab.page.locator(".hc .row").evaluate_all("rows => rows.map(row => row.classList[1])")


def focused(lab):
    return lab.page.evaluate("() => document.activeElement.dataset.row")


def test_one_timestamp_is_followed_through_hashes_sizes_and_places(open_cells):
    lab = open_cells("chains", [MAKE], width=1640, height=1200)
    lab.run_all()
    lab.page.locator(".hc .row").first.wait_for()
    told(lab)
    assert states(lab) == ["hit", "hit", "first", "after", "after", "after", "after"]
    assert lab.page.locator(".hc .lit").all_text_contents() == ["14:07", "14:08"]
    assert lab.page.locator("img.mv-snapshot").is_hidden()
    lab.screenshot("hash-chains", ".hc")
    lab.screenshot("hash-chains", ".hc", dark=True)

    lab.page.get_by_role("radio", name="tokens alone").click()
    lab.page.locator(".hc .head .t", has_text="5 of 7 match, 3 wrongly").wait_for()
    told(lab)
    assert states(lab) == ["hit", "hit", "first", "wrong", "wrong", "wrong", "after"]
    lab.screenshot("hash-chains-alone", ".hc")
    lab.screenshot("hash-chains-alone", ".hc", dark=True)
    lab.page.get_by_role("radio", name="tokens alone").press("t")  # by its name: a change of theme may take the focus
    lab.page.locator(".hc .head .t", has_text="2 of 7 blocks hit").wait_for()

    for size, headline in ((2, "5 of 14"), (8, "1 of 3"), (4, "2 of 7")):
        lab.page.get_by_role("radio", name=str(size), exact=True).click()
        lab.page.locator(".hc .head .t", has_text=headline).wait_for()
        told(lab)
        lab.screenshot(f"hash-chains-{size}", ".hc")

    lab.page.get_by_role("slider").focus()
    for _ in range(3):
        lab.page.keyboard.press("ArrowRight")
    lab.page.locator(".hc .head .t", has_text="5 of 7 blocks hit").wait_for()
    told(lab)
    assert lab.python("print(chains.first_mismatch)") == "(22, 5)"
    lab.screenshot("hash-chains-moved", ".hc")
    box = lab.page.get_by_role("slider").bounding_box()
    lab.page.mouse.move(box["x"] + box["width"] * 5 / 6, box["y"] + box["height"] / 2)
    lab.page.mouse.down()
    lab.page.mouse.move(box["x"] + box["width"] / 6, box["y"] + box["height"] / 2, steps=8)
    lab.page.mouse.up()
    lab.page.locator(".hc .head .t", has_text="1 of 7 blocks hit").wait_for()
    told(lab)
    lab.python("chains.place(0)")
    lab.page.locator(".hc .head .t", has_text="0 of 7 blocks hit").wait_for()
    told(lab)


def test_keys_walk_the_rows_and_errors_are_shown(open_cells):
    lab = open_cells("chain-keys", [MAKE], width=1400, height=1100)
    lab.run_all()
    lab.page.locator(".hc .row").first.wait_for()
    lab.page.get_by_role("button", name="next mismatch").click()
    eventually(lambda: _is(focused(lab), "2"))
    assert "Block 2, first mismatch. A: Time : 14:07 ., hash" in lab.page.locator(".hc [data-row='2']").get_attribute(
        "aria-label"
    )
    for key, row in [
        ("n", "3"),
        ("ArrowUp", "2"),
        ("ArrowDown", "3"),
        ("End", "6"),
        ("n", "2"),
        ("N", "6"),
        ("Home", "0"),
    ]:
        lab.page.keyboard.press(key)
        eventually(lambda row=row: _is(focused(lab), row))
    eventually(lambda: _is(lab.python("print(chains.tick)"), "0"))
    lab.page.keyboard.press("b")
    assert lab.page.evaluate("() => document.activeElement.dataset.value") == "4"
    lab.page.keyboard.press("?")
    lab.page.locator(".hc .keylist").wait_for()
    lab.page.keyboard.press("?")
    lab.python("chains.handle({'type': 'set', 'name': 'block_size', 'value': 3})")
    lab.page.locator(".hc .alarm", has_text="block_size is 3; allowed: 2, 4, 8").wait_for()
    lab.page.keyboard.press("t")
    lab.page.locator(".hc .alarm").wait_for(state="hidden")
    told(lab)


def test_it_fits_narrow_pages_and_words_stay_words(open_cells):
    for width, name in (
        (1232, "800"),
        (1032, "600"),
    ):  # of the window, in which the widget is as wide as its picture is named
        lab = open_cells(f"chains-{name}", [MAKE], width=width, height=1500)
        lab.run_all()
        lab.page.locator(".hc .row").first.wait_for()
        told(lab)
        box = lab.page.locator(".hc").evaluate("el => [el.scrollWidth, el.clientWidth]")
        assert box[0] <= box[1]
        lab.screenshot(f"hash-chains-{name}", ".hc")
    lab = open_cells("chains-odd", [ODD], width=1640, height=1000)
    lab.run_all()
    lab.page.locator(".hc .row").first.wait_for()
    told(lab, "odd")
    assert lab.page.locator(".hc .word").first.text_content() == "<b>"
    assert states(lab) == ["hit", "open", "open"]
    lab.screenshot("hash-chains-odd", ".hc")


def _is(value, wanted):
    assert value == wanted

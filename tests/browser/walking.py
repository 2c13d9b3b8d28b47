"""Walking through a chapter: run it, find its widget, press its buttons and keys, compare what it says with Python."""

import re

from lab_page import eventually

TALL = 1700  # a whole view fits, so that its picture is whole too


def chapter(open_chapter, number, widget, **size):
    """The chapter, run to its end, with its widget drawn and in sight."""
    lab = open_chapter(number, **{"height": TALL, **size})
    lab.run_all()
    found = lab.page.locator(widget).first
    found.wait_for()
    found.scroll_into_view_if_needed()
    return lab


def head(lab, widget, words):
    lab.page.locator(f"{widget} .head .t", has_text=re.compile(words)).first.wait_for()


def press(lab, widget, *keys):
    lab.page.locator(f"{widget} .head").first.click()
    for key in keys:
        lab.page.keyboard.press(key)


def click(lab, widget, name):
    lab.page.locator(widget).first.get_by_role("button", name=name, exact=True).click()


def agrees(lab, widget, sentence):
    """What is read aloud is Python's sentence."""

    def same():
        assert lab.python(f"print({sentence})") in lab.page.locator(f"{widget} output.spoken").first.text_content()

    eventually(same)


def told(lab, expression, value):
    """Python has heard of what was done in the browser: `expression` prints `value`."""

    def same():
        assert lab.python(f"print({expression})") == value

    eventually(same)


def cells(lab):
    """How many cells the notebook has: a key that reached JupyterLab would have changed it."""
    return lab.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.model.cells.length")


def shots(lab, name, widget):
    for dark in (False, True):
        assert lab.screenshot(name, widget, dark=dark).stat().st_size > 1000

"""The ranks in a real JupyterLab: the number is chosen by button, by key and from Python, and what is said is Python's."""

from walking import agrees, cells, head, press, told

MAKE = """
from minivllm.viz import RanksView
view = RanksView(layers=64, q_heads=64, kv_heads=8, head_dim=128, hidden=5120, weights=65.5e9, memory=80e9, title="Qwen3-32B")
view.show()
"""
TINY = """
from minivllm.viz import RanksView
view = RanksView(layers=28, q_heads=16, kv_heads=8, head_dim=128, hidden=1024, weights=1.2e9, memory=1e9)
view.show()
"""
VIEW = ".rv"


def opened(open_cells, name, cell=MAKE, **size):
    lab = open_cells(name, [cell], **{"width": 1640, "height": 1300, **size})
    lab.run_all()
    lab.page.locator(".rv .rank").first.wait_for()
    return lab


def shows(lab, ranks):
    told(lab, "view.ranks", str(ranks))
    head(lab, VIEW, rf"^{ranks} rank")
    agrees(lab, VIEW, "view.sentence")
    assert lab.page.locator(".rv .rank").count() == ranks


def test_the_number_of_ranks_is_chosen_by_button_by_key_and_from_python(open_cells):
    lab = opened(open_cells, "ranks")
    before = cells(lab)
    shows(lab, 1)
    lab.screenshot("ranks-view-1", VIEW)
    press(lab, VIEW, "ArrowRight", "ArrowRight")
    shows(lab, 4)
    for dark in (False, True):
        lab.screenshot("ranks-view", VIEW, dark=dark)
    press(lab, VIEW, "End", "a", "b", "x", "ArrowRight")
    shows(lab, 16)
    assert lab.page.locator(".rv .rank .kv.copy").count() == 8
    for dark in (False, True):
        lab.screenshot("ranks-view-16", VIEW, dark=dark)
    lab.page.locator(".rv").get_by_role("radio", name="2", exact=True).click()
    shows(lab, 2)
    lab.python("view.ranks = 8")
    shows(lab, 8)
    assert cells(lab) == before


def test_it_fits_narrow_pages_and_says_when_nothing_fits(open_cells):
    lab = opened(open_cells, "ranks-narrow", width=1232, height=1700)
    lab.python("view.ranks = 16")
    shows(lab, 16)
    wide, inner = lab.page.locator(VIEW).evaluate("view => [view.scrollWidth, view.clientWidth]")
    assert wide <= inner
    lab.screenshot("ranks-view-800", VIEW)
    lab.page.set_viewport_size({"width": 780, "height": 1700})
    lab.page.wait_for_function("() => document.querySelector('.rv').clientWidth < 400")
    wide, inner = lab.page.locator(VIEW).evaluate("view => [view.scrollWidth, view.clientWidth]")
    assert wide <= inner
    lab = opened(open_cells, "ranks-tiny", TINY)
    lab.page.locator(".rv .say", has_text="leave no room for any").wait_for()
    lab.screenshot("ranks-view-full", VIEW)

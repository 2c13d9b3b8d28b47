"""The engine view in a real JupyterLab: what it says and draws is what Python knows, at every tick."""

import json

from lab_page import eventually

SETUP = """
from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.viz import EngineView
engine = Engine(EngineConfig(block_size=4, num_blocks=24, max_num_batched_tokens=16))
system = list(range(100, 108))
def ask(n, base, out, prefix=()):
    engine.add([*prefix, *range(base, base + n)], SamplingParams(max_tokens=out, temperature=0))
"""
VIEW = "view = EngineView(engine)\nview.show()"
TRAFFIC = """
ask(9, 200, 16, system); ask(21, 300, 5)
for _ in range(5): engine.step()
ask(37, 400, 20, system); ask(26, 500, 20)
for _ in range(9): engine.step()
"""

STATES = """() => [...document.querySelectorAll('.ev .grid [data-block]')].map(cell => [
  cell.classList.contains('used') ? 'used' : cell.classList.contains('cached') ? 'cached' : 'free',
  cell.getAttribute('aria-label')])"""
PYTHON_STATES = "import json\nprint(json.dumps([[b.state, list(b.owners), b.filled] for b in view.snapshot.blocks]))"


def opened(open_cells, name, *cells, **size):
    lab = open_cells(name, [SETUP, *cells], **size)
    lab.run_all()
    lab.page.locator(".ev .cell").first.wait_for()
    return lab


def spoken(lab):
    return lab.page.locator(".ev output").inner_text()


def settle(lab, tick):
    lab.page.locator(".ev .head .t", has_text=f"Tick {tick}of").wait_for()
    lab.page.wait_for_timeout(60)


def told(lab, tick):
    assert lab.python("print(view.tick)") == str(tick)


def agrees(lab):
    """The browser's reducer and Python's replay, block by block, and the sentence."""
    eventually(lambda: compare(lab))


def compare(lab):
    drawn, known = lab.page.evaluate(STATES), json.loads(lab.python(PYTHON_STATES))
    assert [state for state, _ in drawn] == [state for state, _, _ in known]
    for (_, label), (state, owners, filled) in zip(drawn, known, strict=True):
        assert all(owner in label for owner in owners[:4]), (label, owners)
        assert state != "used" or f"{filled} of" in label, (label, filled)
    assert lab.python("print(view.sentence)") in spoken(lab)


def test_every_recorded_tick_is_drawn_and_said_as_python_knows_it(open_cells):
    lab = opened(open_cells, "agree", VIEW, TRAFFIC)
    for tick in range(13, 5, -1):
        lab.page.get_by_role("button", name="back", exact=True).click()
        settle(lab, tick)
        lab.page.wait_for_function(f"() => window.jupyterapp && true || {tick}")
        eventually(lambda tick=tick: told(lab, tick))
        agrees(lab)


def test_a_step_at_the_edge_runs_one_tick_and_keys_move_the_playhead(open_cells):
    lab = opened(open_cells, "keys", VIEW, "ask(9, 200, 6)")
    lab.page.get_by_role("button", name="step", exact=True).click()
    settle(lab, 1)
    assert lab.python("print(engine.tick)") == "1"
    agrees(lab)
    lab.page.locator(".ev .axis").focus()
    for key, tick in (("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("Home", 0), ("End", 3)):
        lab.page.keyboard.press(key)
        settle(lab, tick)
    assert lab.python("print(engine.tick)") == "3"


def test_a_live_edit_applies_at_the_edge_and_a_refused_one_is_shown(open_cells):
    lab = opened(open_cells, "edit", VIEW, TRAFFIC)
    lab.page.locator(".ev .bar").get_by_role("radio", name="8", exact=True).click()
    lab.page.locator(".ev .pool h2", has_text="12 blocks of 8 slots").wait_for()
    assert lab.python("print(engine.config.block_size)") == "8"
    agrees(lab)
    for _ in range(12):
        lab.page.get_by_role("button", name="smaller pool").click()
    lab.page.locator(".ev .alarm:visible").wait_for()
    lab.page.get_by_role("button", name="step", exact=True).click()
    lab.page.locator(".ev .alarm").wait_for(state="hidden")
    agrees(lab)


def test_a_request_is_added_and_its_prompt_never_becomes_markup(open_cells):
    lab = opened(open_cells, "add", VIEW)
    lab.page.get_by_role("button", name="Add request").click()
    prompt = "<img src=x onerror=boom()> <b>bold</b> one two three four five six"
    lab.page.get_by_label("prompt", exact=True).fill(prompt)
    lab.page.get_by_role("button", name="Add", exact=True).click()
    lab.page.locator(".ev .req b", has_text="waiting").wait_for()
    lab.page.get_by_role("button", name="step", exact=True).click()
    settle(lab, 1)
    lab.page.locator(".ev .cell.used").first.hover()
    lab.page.locator(".ev .tok", has_text="<img").wait_for()
    assert lab.page.locator(".ev img").count() == 0


def test_hovering_a_block_rings_it_everywhere_and_draws_its_lines(open_cells):
    lab = opened(open_cells, "hover", VIEW, TRAFFIC, width=1640, height=1500)
    lab.page.locator(".ev .cell.shared").first.hover()
    assert lab.page.locator(".ev .cell.ring").count() == 1
    assert lab.page.locator(".ev .chip.ring").count() == 2
    assert lab.page.locator(".ev .under path").count() == 2
    assert lab.page.locator("img.mv-snapshot").is_hidden()
    lab.screenshot("engine-view", ".ev")
    lab.screenshot("engine-view", ".ev", dark=True)


def test_running_the_cell_again_does_not_double_a_click_and_an_old_view_says_so(open_cells):
    lab = opened(open_cells, "again", "ask(9, 200, 9)", VIEW)
    lab.run_all()
    lab.page.locator(".ev .cell").first.wait_for()
    lab.page.get_by_role("button", name="step", exact=True).click()
    settle(lab, 1)
    assert lab.python("print(engine.tick)") == "1"
    lab.python("engine = Engine(EngineConfig(block_size=8, num_blocks=12))")
    lab.page.get_by_role("button", name="step", exact=True).click()
    lab.page.locator(".ev .notice", has_text="this view belongs to engine").wait_for()
    assert "which was replaced" in lab.page.locator(".ev .notice").inner_text()
    assert lab.python("print(engine.tick, view.disabled)") == "0 True"


RESTART = "async () => { await window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart(); }"


def test_after_a_restart_of_the_kernel_the_view_says_that_it_is_gone(open_cells):
    lab = opened(open_cells, "restarted", VIEW, "ask(9, 200, 9); view.step(3)")
    settle(lab, 3)
    lab.page.evaluate(RESTART)
    lab.page.locator(".ev .head").click()
    lab.page.keyboard.press("ArrowRight")
    lab.page.locator(".ev .alarm", has_text="is gone: run its cell again").wait_for()
    lab.page.keyboard.press("ArrowLeft")
    settle(lab, 2)


def test_it_fits_a_narrow_page(open_cells):
    lab = opened(open_cells, "narrow", VIEW, TRAFFIC, width=1000, height=2200)
    wide, inner = lab.page.locator(".ev").evaluate("view => [view.scrollWidth, view.clientWidth]")
    assert wide <= inner + 1
    lab.screenshot("engine-view-narrow", ".ev")


def test_a_big_pool_is_a_canvas_with_a_lens_that_follows_the_keys(open_cells):
    pool = "engine.reconfigure(num_blocks=4096, block_size=16)\nask(900, 0, 4); engine.step()"
    lab = opened(open_cells, "big", VIEW, pool, width=1640, height=1500)
    lab.page.locator(".ev canvas.marks").wait_for()
    cells = lab.page.locator(".ev .lens [role=gridcell]")
    assert cells.count() == 21
    assert cells.first.get_attribute("aria-label").startswith("Block 0, A, 16 of 16 slots")
    cells.first.focus()
    for _ in range(5):
        lab.page.keyboard.press("ArrowRight")
    assert lab.page.evaluate("() => document.activeElement.dataset.block") == "5"
    lab.screenshot("engine-view-big", ".ev")


NAMED = """
from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.viz import EngineView
named = Engine(EngineConfig(block_size=4, num_blocks=24))
view = EngineView(named)
for name in ("customer-4711", "customer-4712", "x"):
    named.add(list(range(13)), SamplingParams(max_tokens=30, ignore_eos=True), request_id=name)
    view.step()
view.show()
"""


def test_long_names_stay_inside_their_blocks(open_cells):
    lab = open_cells("named", [NAMED], width=1400, height=1200)
    lab.run_all()
    lab.page.locator(".ev .cell .owners b").first.wait_for()
    outside = lab.page.locator(".ev .cell :is(.owner, .owners b)").evaluate_all(
        "names => names.filter(n => { const a = n.getBoundingClientRect(), b = n.closest('.cell').getBoundingClientRect();"
        " return a.left < b.left - 0.5 || a.right > b.right + 0.5; }).map(n => n.textContent)"
    )
    assert outside == []
    lab.screenshot("engine-view-names", ".ev")

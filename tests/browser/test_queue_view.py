"""The queue view in a real JupyterLab: it draws the queue that Python knows, by button and by key, in light and dark."""

import json
import re

from lab_page import eventually

SETUP = """
from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.core.eviction import LRU
from minivllm.viz import QueueView
class Mine(LRU):
    pass
engine = Engine(EngineConfig(block_size=4, num_blocks=24, max_num_batched_tokens=16))
def ask(n, base, out, prefix=(), name=None):
    engine.add([*prefix, *range(base, base + n)], SamplingParams(max_tokens=out, temperature=0), request_id=name)
"""
VIEW = "view = QueueView(engine)\nview.show()"
TRAFFIC = """
system = list(range(100, 108))
ask(9, 200, 16, system, "A"); ask(21, 300, 5, (), "Z"); ask(13, 250, 3, (), "Y")
for _ in range(6): engine.step()
ask(22, 400, 20, system, "B")
for _ in range(3): engine.step()
ask(26, 500, 20, (), "C")
for _ in range(5): engine.step()
"""
DRAWN = """() => [...document.querySelectorAll('.qv .queue [data-block]')].map(cell => Number(cell.dataset.block))"""


def opened(open_cells, name, *cells, **size):
    lab = open_cells(name, [SETUP, *cells], **{"height": 1300, **size})
    lab.run_all()
    lab.page.locator(".qv .item").first.wait_for()
    return lab


def head(lab, tick):
    lab.page.locator(".qv .head .t", has_text=re.compile(rf"Tick {tick}\s*of")).wait_for()


def agrees(lab):
    """The queue that is drawn, the references, and the sentence that is read aloud, are Python's."""

    def same():
        known = json.loads(lab.python("import json\nprint(json.dumps([view.queue, view.in_use, view.sentence]))"))
        assert lab.page.evaluate(DRAWN) == known[0]
        refs = lab.page.locator(".qv .units .unit").all_inner_texts()
        assert len(refs) == len(known[1])
        assert sorted(int(r.split("ref ")[-1]) for r in refs) == sorted(known[1].values())
        assert known[2] in lab.page.locator(".qv output.spoken").text_content()

    eventually(same)


def press(lab, *keys):
    lab.page.locator(".qv .head").click()
    for key in keys:
        lab.page.keyboard.press(key)


def click(lab, name):
    lab.page.locator(".qv").get_by_role("button", name=name, exact=True).click()


def test_every_tick_is_drawn_and_said_as_python_knows_it(open_cells):
    lab = opened(open_cells, "queue", VIEW, TRAFFIC)
    agrees(lab)
    for tick in (13, 12, 11, 10, 9):
        click(lab, "back")
        head(lab, tick)
        agrees(lab)
    click(lab, "step")
    head(lab, 10)
    press(lab, "End", "ArrowRight")
    head(lab, 15)
    agrees(lab)
    assert lab.python("print(engine.tick)") == "15"
    press(lab, "Home")
    head(lab, 0)
    lab.page.locator(".qv .say", has_text="Before the first tick").wait_for()


def test_keys_jump_to_hits_evictions_and_releases(open_cells):
    lab = opened(open_cells, "jumps", VIEW, TRAFFIC)
    ticks = "print([t for t in range(1, view.edge + 1) if any(e.kind == '{}' for e in view.track.events(t))])"
    for key, kind in (("h", "hit"), ("e", "evict"), ("r", "release")):
        when = json.loads(lab.python(ticks.format(kind)))
        assert when
        press(lab, "Home", key)
        head(lab, when[0])
        press(lab, "End", "ArrowLeft", key.upper())
        head(lab, max(t for t in when if t < 13))
        agrees(lab)
    press(lab, "Home", "h", "H")
    lab.page.locator(".qv .hint", has_text="no earlier hit").wait_for()


def test_a_block_is_ringed_at_all_its_places_and_pinned(open_cells):
    lab = opened(open_cells, "ring", VIEW, TRAFFIC, width=1640)
    press(lab, "Home", "e")
    tick = lab.page.locator(".qv .head .t").inner_text()
    block = lab.page.locator(".qv .queue .cached").last
    block.hover()
    lab.page.locator(".qv .ringing", has_text="ringed: block").wait_for()
    assert lab.page.locator(".qv .ring").count() == 3, tick  # the queue, the map, what is left
    lab.screenshot("queue-view", ".qv")
    lab.screenshot("queue-view", ".qv", dark=True)
    block.hover()
    block.click()
    lab.page.locator(".qv .head").hover()
    assert lab.page.locator(".qv .ring").count() == 3
    lab.page.keyboard.press("Escape")
    assert lab.page.locator(".qv .ring").count() == 0
    press(lab, "g", "ArrowRight", "Enter")
    first, second = lab.page.evaluate(DRAWN)[:2]
    assert lab.page.evaluate("() => Number(document.activeElement.dataset.block)") == second != first
    lab.page.locator(".qv .ringing", has_text=f"block {second}, in all its places (pinned").wait_for()


def test_the_order_is_changed_at_the_edge_and_a_failure_is_shown(open_cells):
    lab = opened(open_cells, "order", VIEW, TRAFFIC)
    orders = lab.page.locator(".qv [role=radiogroup][aria-label='eviction order'] button")
    assert orders.all_inner_texts() == ["LRU", "FIFO"]
    press(lab, "ArrowLeft", "ArrowLeft")
    orders.nth(1).click()
    head(lab, 14)
    lab.page.locator(".qv .hint", has_text="the pool starts over").wait_for()
    assert lab.python("print(engine.config.eviction, view.order, view.in_use)") == "fifo fifo {}"
    agrees(lab)
    lab.python("engine.reconfigure(eviction=Mine)")
    lab.page.locator(".qv .order button", has_text="yours").wait_for()
    orders.nth(0).click()
    lab.page.locator(".qv .order button[aria-checked=true]", has_text="LRU").wait_for()
    lab.python("view.handle({'type': 'set', 'name': 'eviction', 'value': 'newest'})")
    lab.page.locator(".qv .alarm", has_text="allowed: lru, fifo, yours").wait_for()
    press(lab, "ArrowRight")
    head(lab, 15)
    lab.page.locator(".qv .alarm").wait_for(state="hidden")
    agrees(lab)


def test_it_fits_a_narrow_page(open_cells):
    lab = opened(open_cells, "narrow-queue", VIEW, TRAFFIC, width=1236, height=1700)
    for name, keys in (("hit", "hr"), ("narrow", "rr")):
        press(lab, "Home", *keys)
        wide, inner = lab.page.locator(".qv").evaluate("view => [view.scrollWidth, view.clientWidth]")
        assert wide <= inner + 1
        lab.screenshot(f"queue-view-{name}", ".qv")
    lab.page.set_viewport_size({"width": 1136, "height": 1900})
    lab.page.wait_for_timeout(300)
    wide, inner = lab.page.locator(".qv").evaluate("view => [view.scrollWidth, view.clientWidth]")
    assert wide <= inner + 1
    lab.screenshot("queue-view-700", ".qv")


def test_a_pool_of_2000_blocks_is_drawn_at_once(open_cells):
    big = "engine.reconfigure(num_blocks=2000)\nfor k in range(14): ask(9 + 40 * k, 1000 * k, 3 + k)\n"
    lab = opened(
        open_cells, "big-queue", "view = QueueView(engine)\nview.show()", big + "for _ in range(40): engine.step()"
    )
    press(lab, "ArrowLeft", "r")
    lab.page.locator(".qv .item.gap", has_text="more between").wait_for()
    edge = int(lab.python("print(view.tick)"))
    press(lab, *["ArrowLeft"] * 20)
    head(lab, edge - 20)
    lab.screenshot("queue-view-big", ".qv")

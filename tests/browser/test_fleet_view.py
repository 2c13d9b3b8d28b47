"""The fleet view in a real JupyterLab: every decision is drawn and said as Python knows it, by button and by key."""

import json
import re

from lab_page import eventually
from walking import agrees, cells, click, head, press, told

MAKE = """
from minivllm import EngineConfig
from minivllm.lab.fleet import Fleet
from minivllm.lab.routers import LeastLoaded, PrefixAffinity, RandomRouter
from minivllm.lab.workloads import Call, chat
from minivllm.viz import FleetView
config = EngineConfig(block_size=16, num_blocks=160, max_num_batched_tokens=1024)
def served(router, calls, n=4, config=config):
    fleet = Fleet(n, config, router)
    fleet.serve(calls)
    return fleet
"""
BUSY = """
calls = chat(3, conversations=40, rate=12)
routers = {"random": RandomRouter(1), "least loaded": LeastLoaded(), "affinity": PrefixAffinity(slack=3)}
view = FleetView({name: served(router, calls) for name, router in routers.items()}, title="four replicas")
view.show()
"""
FEW = """
calls = chat(3, conversations=6, rate=12)
calls = [Call(c.id.replace("chat4", "<b>4</b>"), c.at, c.prompt, c.output, c.after and c.after.replace("chat4", "<b>4</b>"))
         for c in calls]
view = FleetView({"random": served(RandomRouter(1), calls, 3), "affinity": served(PrefixAffinity(), calls, 3)})
view.show()
"""
MANY = """
view = FleetView(served(PrefixAffinity(slack=40), chat(3, conversations=60, rate=400), 8, config.replace(num_blocks=1200)))
view.show()
"""
VIEW = ".fl"


def opened(open_cells, name, cell=BUSY, **size):
    lab = open_cells(name, [MAKE, cell], **{"width": 1640, "height": 1300, **size})
    lab.run_all()
    lab.page.locator(".fl .replica").first.wait_for()
    return lab


def drawn(lab):
    """The decision that is drawn, and the sentence that is read aloud, are Python's."""

    def same():
        found, loads, chosen = json.loads(lab.python(
            "import json\nd = view.decision\nprint(json.dumps([d.found, d.loads, d.replica]))"))  # fmt: skip
        replicas = lab.page.locator(".fl .replica")
        assert "chosen" in replicas.nth(chosen).get_attribute("class")
        assert lab.page.locator(".fl .replica.chosen").count() == 1
        for n, words in enumerate(replicas.all_inner_texts()):
            assert f"{found[n]:,} of " in words
            assert re.search(rf"\b{loads[n]} requests?\b", words)

    eventually(same)
    agrees(lab, VIEW, "view.sentence")


def fits(lab):
    wide, inner = lab.page.locator(VIEW).evaluate("view => [view.scrollWidth, view.clientWidth]")
    assert wide <= inner


def test_every_decision_is_drawn_and_said_as_python_knows_it(open_cells):
    lab = opened(open_cells, "fleet")
    head(lab, VIEW, r"Decision 0\s*of")
    agrees(lab, VIEW, "view.sentence")
    lab.screenshot("fleet-view-start", VIEW)
    for n in range(3):
        click(lab, VIEW, "step")
        head(lab, VIEW, rf"Decision {n + 1}\s*of")
        drawn(lab)
    press(lab, VIEW, "End")
    lab.python("view.tick = 70")
    head(lab, VIEW, r"Decision 70\s*of")
    drawn(lab)
    lab.screenshot("fleet-view", VIEW)
    lab.screenshot("fleet-view", VIEW, dark=True)


def test_keys_step_and_jump_and_never_reach_the_notebook(open_cells):
    lab = opened(open_cells, "fleet-keys")
    before = cells(lab)
    lost = json.loads(
        lab.python("print([k for k, r in enumerate(view.fleet.routed, 1) if max(r.found) > r.found[r.replica]])")
    )
    press(lab, VIEW, "m")
    head(lab, VIEW, rf"Decision {lost[0]}\s*of")
    press(lab, VIEW, "m", "m", "M")
    head(lab, VIEW, rf"Decision {lost[1]}\s*of")
    drawn(lab)
    press(lab, VIEW, "End", "ArrowLeft")
    head(lab, VIEW, r"Decision 144\s*of")
    press(lab, VIEW, "End", "ArrowRight")
    lab.page.locator(".fl .hint", has_text="that was the last decision").wait_for()
    press(lab, VIEW, "m")
    lab.page.locator(".fl .hint", has_text="nothing later is computed again").wait_for()
    press(lab, VIEW, "Home", "?")
    lab.page.locator(".fl .keylist", has_text="next router").wait_for()
    press(lab, VIEW, "?", "a", "b", "d", "d", "x", "Enter")
    assert cells(lab) == before
    press(lab, VIEW, " ")
    head(lab, VIEW, r"Decision 2\s*of")
    press(lab, VIEW, " ")
    told(lab, "view.tick > 1", "True")


def test_the_router_is_chosen_by_button_by_key_and_from_python(open_cells):
    lab = opened(open_cells, "fleet-routers")
    lab.python("view.tick = 60")
    chosen = lab.page.locator(".fl [role=radiogroup][aria-label=router] [aria-checked=true]")
    for act, name in ((lambda: press(lab, VIEW, "r"), "least loaded"), (lambda: press(lab, VIEW, "R", "R"), "affinity"),
                      (lambda: lab.page.locator(".fl").get_by_role("radio", name="random").click(), "random"),
                      (lambda: lab.python("view.router = 'affinity'"), "affinity")):  # fmt: skip
        act()
        told(lab, "view.router, view.tick", f"{name} 60")
        eventually(lambda name=name: _is(chosen.inner_text(), name))
        head(lab, VIEW, r"Decision 60\s*of")
        drawn(lab)
    lab.screenshot("fleet-view-affinity", VIEW)


def test_decisions_are_drawn_once_they_were_shown(open_cells):
    lab = opened(open_cells, "fleet-future")
    bars = lab.page.locator(".fl .axis .col")
    press(lab, VIEW, "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft")
    head(lab, VIEW, r"Decision 2\s*of")
    assert bars.count() == 3
    assert lab.page.locator(".fl .axis .col.future").count() == 1
    press(lab, VIEW, "End", "Home")
    head(lab, VIEW, r"Decision 0\s*of")
    assert bars.count() == lab.page.locator(".fl .axis .col.future").count() == 145


def test_the_timeline_can_be_dragged(open_cells):
    lab = opened(open_cells, "fleet-drag")
    box = lab.page.locator(".fl .axis").bounding_box()
    lab.page.mouse.move(box["x"] + 300, box["y"] + 100)
    lab.page.mouse.down()
    lab.page.mouse.move(box["x"] + 600, box["y"] + 100, steps=4)
    lab.page.mouse.up()
    told(lab, "60 < view.tick < 110", "True")
    drawn(lab)
    now = lab.page.locator(".fl .axis").get_attribute("aria-valuenow")
    lab.page.locator(".fl .axis").press("ArrowRight")
    told(lab, "view.tick", str(int(now) + 1))


def test_it_fits_narrow_pages_and_names_stay_text(open_cells):
    for width, name in ((1232, "800"), (1032, "600")):  # of the window; the widget is about as wide as it is named
        lab = opened(open_cells, f"fleet-{name}", width=width, height=1700)
        press(lab, VIEW, "End")
        lab.python("view.tick = view.edge - 8")
        head(lab, VIEW, r"Decision 137\s*of")
        fits(lab)
        lab.screenshot(f"fleet-view-{name}", VIEW)
    lab = opened(open_cells, "fleet-few", FEW)
    lab.python("view.tick = next(k for k, r in enumerate(view.fleet.routed, 1) if r.call == '<b>4</b>.1')")
    lab.page.locator(".fl .say .who", has_text="<b>4</b>.1").wait_for()
    drawn(lab)
    for dark in (False, True):
        lab.screenshot("fleet-view-few", VIEW, dark=dark)
    lab = opened(open_cells, "fleet-many", MANY)
    lab.python("view.tick = 110")
    drawn(lab)
    fits(lab)
    lab.screenshot("fleet-view-many", VIEW)


def _is(value, wanted):
    assert value == wanted

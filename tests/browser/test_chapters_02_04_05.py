"""Chapters 02, 04 and 05 in a real JupyterLab: they run, their widgets move by button and key, and say what Python knows."""

import re

import pytest
from walking import agrees, cells, chapter, click, head, press, shots, told


def test_chapter_02_the_strips_step_back_jump_and_are_run_anew(open_chapter):
    lab = chapter(open_chapter, "02", ".mv.ms")
    before = cells(lab)
    head(lab, ".ms", r"Tick 26\s*of 26")
    agrees(lab, ".ms", "strip.sentence")
    shots(lab, "chapter-02-memory", ".mv.ms")
    press(lab, ".ms", "ArrowLeft", "ArrowLeft")
    head(lab, ".ms", r"Tick 24\s*of 26")
    agrees(lab, ".ms", "strip.sentence")
    press(lab, ".ms", "End")
    click(lab, ".ms", "step")
    head(lab, ".ms", r"Tick 27\s*of 27")
    agrees(lab, ".ms", "strip.sentence")
    press(lab, ".ms", "Home")
    head(lab, ".ms", r"Tick 0\s*of")
    lab.page.locator(".ms [role=radiogroup][aria-label='longest allowed'] button", has_text="256").first.click()
    told(lab, "strip.longest", "256")
    lab.python("strip.goto(12)")
    head(lab, ".ms", r"Tick 12\s*of")
    assert cells(lab) == before


def test_chapter_02_a_prediction_is_drawn_beside_its_result(open_chapter):
    lab = chapter(open_chapter, "02", ".mv.ms")
    field = lab.page.locator(".minivllm-predict input").nth(1)
    field.fill("60")
    field.press("Enter")
    lab.page.locator(".minivllm-predict", has_text="you said 60 %").wait_for()
    lab.run_all()
    lab.page.locator(".ms", has_text="you said 60 %, off by").first.wait_for()


def test_chapter_04_the_stepper_goes_line_by_line_page_by_page_and_breaks(open_chapter):
    lab = chapter(open_chapter, "04", ".mv.ks")
    before = cells(lab)
    head(lab, ".ks", r"Page 6\s*of 6")
    agrees(lab, ".ks", "stepper.sentence")
    shots(lab, "chapter-04-kernel", ".mv.ks")
    press(lab, ".ks", "ArrowRight", "ArrowRight", "ArrowRight")
    head(lab, ".ks", "Done")
    press(lab, ".ks", "Home", "ArrowRight")
    agrees(lab, ".ks", "stepper.sentence")
    press(lab, ".ks", "l", "ArrowRight")
    head(lab, ".ks", r"Page 1\s*of 6")
    click(lab, ".ks", "step")
    head(lab, ".ks", r"Page 2\s*of 6")
    click(lab, ".ks", "back")
    head(lab, ".ks", r"Page 1\s*of 6")
    told(lab, "stepper.page", "1")
    press(lab, ".ks", "1", "l", "End")
    lab.page.locator(".ks .verdict", has_text="with mask V off it ends in 8 NaN of 8").first.wait_for()
    told(lab, "stepper.fault", "mask V off")
    press(lab, ".ks", "ArrowLeft", "ArrowLeft")
    lab.page.locator(".ks output.spoken", has_text="0 × NaN is NaN").first.wait_for(state="attached")
    shots(lab, "chapter-04-unmasked", ".mv.ks")
    press(lab, ".ks", "1")
    lab.python("stepper.page = 3")
    head(lab, ".ks", r"Page 3\s*of 6")
    assert cells(lab) == before


def test_chapter_05_the_scheduler_steps_back_and_takes_edits(open_chapter):
    lab = chapter(open_chapter, "05", ".mv.sv")
    before = cells(lab)
    lab.python("view.tick = 4")
    head(lab, ".sv", r"Tick 4\s*of")
    agrees(lab, ".sv", "view.sentence")
    shots(lab, "chapter-05-scheduler", ".mv.sv")
    press(lab, ".sv", "ArrowLeft")
    head(lab, ".sv", r"Tick 3\s*of")
    click(lab, ".sv", "step")
    head(lab, ".sv", r"Tick 4\s*of")
    press(lab, ".sv", "f")
    head(lab, ".sv", r"Tick 5\s*of")
    agrees(lab, ".sv", "view.sentence")
    edge = int(lab.python("print(view.edge)"))
    press(lab, ".sv", "End")
    head(lab, ".sv", rf"Tick {edge}\s*of")
    spent = lab.page.locator(".sv .budget h2").first
    used = re.search(r"(\d+) of", spent.text_content())[1]
    assert used != "0"
    lab.page.locator(
        ".sv [role=radiogroup][aria-label='token budget'] button", has_text=re.compile("^8$")
    ).first.click()
    lab.page.locator(".sv .budget h2", has_text=f"{used} of 8 tokens used").first.wait_for()  # what ran has run
    waiting = int(lab.python("print(len(view.engine.scheduler.waiting))"))
    press(lab, ".sv", "a")
    lab.page.locator(".sv form input").first.fill("20")
    lab.page.keyboard.press("Enter")
    told(lab, "len(view.engine.scheduler.waiting)", str(waiting + 1))
    press(lab, ".sv", "End", "ArrowRight")
    head(lab, ".sv", rf"Tick {edge + 1}\s*of")
    told(lab, "(view.engine.config.max_num_batched_tokens, view.chart.prompts[-1])", "(8, 8)")
    agrees(lab, ".sv", "view.sentence")
    assert cells(lab) == before


def test_chapter_05_what_fails_is_shown_and_the_next_click_works(open_chapter):
    lab = chapter(open_chapter, "05", ".mv.sv")
    lab.python("view.handle({'type': 'set', 'name': 'max_num_batched_tokens', 'value': 0})")
    lab.page.locator(".sv .alarm", has_text="max_num_batched_tokens is 0").first.wait_for()
    press(lab, ".sv", "Home", "ArrowRight")
    head(lab, ".sv", r"Tick 1\s*of")


def test_the_widgets_fit_a_narrow_page(open_chapter):
    for number, widget in (("02", ".mv.ms"), ("05", ".mv.sv")):
        lab = chapter(open_chapter, number, widget, width=900)
        box = lab.page.locator(widget).first
        assert box.evaluate("node => node.scrollWidth <= node.clientWidth + 1")
        lab.screenshot(f"chapter-{number}-narrow", widget)


STRIP = """from minivllm.viz import MemoryStrip
prompts = (27, 46, 35, 42, 49, 50, 42, 47, 24, 42, 47, 37, 21)
answers = (49, 20, 50, 52, 16, 12, 28, 26, 57, 46, 42, 52, 26)
strip = MemoryStrip(list(zip(prompts, answers)), slots=560, longest=128)
strip.step(26)
strip.show()"""
STEPPER = """from minivllm.lab.paged_kernel import paged
from minivllm.viz.kernel_stepper import KernelStepper
stepper = KernelStepper(paged)
stepper.page = 6
stepper.show()"""
SCHEDULER = """from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.viz.scheduler_view import SchedulerView
view = SchedulerView(Engine(EngineConfig(block_size=4, num_blocks=64)))
view.engine.add([1] * 5, SamplingParams(max_tokens=12, ignore_eos=True))
view.run()
view.show()"""
OUTSIDE = """widget => {
  const edge = widget.getBoundingClientRect().right + 1;
  const texts = [...widget.querySelectorAll('svg text')];
  return texts.filter(node => node.getBoundingClientRect().right > edge).map(node => node.textContent);
}"""


@pytest.mark.parametrize(("cell", "widget"), [(STRIP, ".mv.ms"), (STEPPER, ".mv.ks"), (SCHEDULER, ".mv.sv")])
def test_on_a_very_narrow_page_every_word_can_be_read(open_cells, cell, widget):
    lab = open_cells("narrow", [cell], width=730)  # JupyterLab's side bar leaves 364 for the widget
    lab.run_all()
    found = lab.page.locator(widget).first
    found.wait_for()
    lab.page.locator(f"{widget} svg text").first.wait_for(state="attached")
    assert found.evaluate("node => node.clientWidth") < 400
    assert found.evaluate(OUTSIDE) == []
    assert found.evaluate("node => node.scrollWidth <= node.clientWidth + 1")

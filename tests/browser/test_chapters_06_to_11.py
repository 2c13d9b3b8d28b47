"""Chapters 06 to 11 in a real JupyterLab: they run, their widgets move by button and key, and say what Python knows."""

from walking import agrees, cells, chapter, click, head, press, shots, told

from minivllm.lab.recorded import recorded


def test_chapter_06_the_chains_change_their_hash_and_their_blocks(open_chapter):
    lab = chapter(open_chapter, "06", ".mv.hc")
    before = cells(lab)
    agrees(lab, ".hc", "chains.sentence")
    shots(lab, "chapter-06-chains", ".mv.hc")
    press(lab, ".hc", "t")
    lab.page.locator(".hc .head", has_text="5 of 7 match, 3 wrongly").first.wait_for()
    agrees(lab, ".hc", "chains.sentence")
    press(lab, ".hc", "t", "ArrowDown", "n")
    lab.python("chains.set('block_size', 8)")
    agrees(lab, ".hc", "chains.sentence")
    lab.python("chains.place(0)")
    assert lab.python("print(chains.hits)") == "0"
    agrees(lab, ".hc", "chains.sentence")
    assert cells(lab) == before


def test_chapter_07_the_queue_steps_back_and_goes_on(open_chapter):
    lab = chapter(open_chapter, "07", ".mv.qv")
    before = cells(lab)
    head(lab, ".qv", r"Tick 4\s*of 4")
    agrees(lab, ".qv", "owners.sentence")
    shots(lab, "chapter-07-owners", ".mv.qv")
    press(lab, ".qv", "ArrowRight")
    head(lab, ".qv", r"Tick 5\s*of 5")
    lab.python("owners.step(2)")
    head(lab, ".qv", r"Tick 7\s*of 7")
    agrees(lab, ".qv", "owners.sentence")
    click(lab, ".qv", "back")
    head(lab, ".qv", r"Tick 6\s*of 7")
    agrees(lab, ".qv", "owners.sentence")
    press(lab, ".qv", "Home", "r")
    agrees(lab, ".qv", "owners.sentence")
    assert lab.page.locator(".mv.qv").nth(1).get_attribute("inert") is None  # the second one lives too
    assert cells(lab) == before


def test_chapter_08_a_point_of_a_sweep_is_opened(open_chapter):
    lab = chapter(open_chapter, "08", ".mv.ev")
    agrees(lab, ".ev", "view.sentence")
    shots(lab, "chapter-08-point", ".mv.ev")
    lab.page.locator(".js-plotly-plot").first.wait_for()
    press(lab, ".ev", "ArrowLeft")
    agrees(lab, ".ev", "view.sentence")


def test_chapter_09_the_point_moves_along_the_roof(open_chapter):
    lab = chapter(open_chapter, "09", ".mv.rf")
    before = cells(lab)
    agrees(lab, ".rf", "roof.sentence")
    shots(lab, "chapter-09-roof", ".mv.rf")
    lab.python("roof.set('batch', 256)")
    agrees(lab, ".rf", "roof.sentence")
    limit = recorded("h200-engine").of("decode step")[-1]["limit ms"]
    assert abs(float(lab.python("print(roof.limit_ms)")) - limit) < 2e-3
    assert cells(lab) == before


def test_chapter_10_a_patient_is_stepped_back_and_a_failed_step_is_told_up_to_there(open_chapter):
    lab = chapter(open_chapter, "10", ".mv.ev")
    before = cells(lab)
    head(lab, ".ev", r"Tick 71\s*of 71")
    agrees(lab, ".ev", "view1.sentence")
    shots(lab, "chapter-10-patient", ".mv.ev")
    press(lab, ".ev", "Home", "ArrowRight")
    head(lab, ".ev", r"Tick 1\s*of 71")
    agrees(lab, ".ev", "view1.sentence")
    failed = lab.page.locator(".mv.ev").nth(9)
    failed.scroll_into_view_if_needed()
    failed.locator(".head", has_text="The step failed").wait_for()
    failed.locator("h2", has_text="2 of 8,192 tokens used").wait_for()  # what the engine tells anew is no work
    assert cells(lab) == before


def test_chapter_11_decisions_are_stepped_and_the_ranks_are_chosen(open_chapter):
    lab = chapter(open_chapter, "11", ".mv.fl")
    before = cells(lab)
    agrees(lab, ".fl", "view.sentence")
    shots(lab, "chapter-11-fleet", ".mv.fl")
    press(lab, ".fl", "ArrowLeft")
    agrees(lab, ".fl", "view.sentence")
    told(lab, "view.tick", "17")
    press(lab, ".fl", "r")
    told(lab, "view.router", "random")
    agrees(lab, ".fl", "view.sentence")
    lab.page.locator(".rv").first.get_by_role("radio", name="8", exact=True).click()
    told(lab, "cuts.ranks", "8")
    assert cells(lab) == before

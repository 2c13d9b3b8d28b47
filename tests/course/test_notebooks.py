"""Every notebook is a clean run of its source: complete, comparable, small, without traces of a machine."""

import html
import re
from pathlib import Path

import pytest
from notebooks import COURSE, IGNORED, NOTEBOOKS, is_compared, printed, tags, text

from minivllm.lab.build import difference, unrun

MOST_LINES = 20
MOST_BYTES = 500_000
MOST_IGNORED = 0.15
KNOWN_TAGS = re.compile(rf"{IGNORED}|solution:\d\d\.\w+")

every_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.path.stem)


def test_the_course_has_a_notebook_for_every_source_and_no_other():
    sources = {path.stem for path in (COURSE / "src").glob("[0-9][0-9]_*.py")}
    assert {notebook.path.stem for notebook in NOTEBOOKS} == sources
    assert {path.stem for path in COURSE.glob("*.ipynb")} == sources


@every_notebook
def test_it_is_what_its_source_says(notebook):
    import nbformat

    found = difference(unrun(notebook.source), nbformat.read(notebook.path, as_version=4), with_outputs=False)
    assert found is None, f"{found}; run `make course NAMES={notebook.path.stem}`"


@every_notebook
def test_it_was_run_once_from_top_to_bottom(notebook):
    counts = [cell["execution_count"] for cell in notebook.code]
    assert counts == list(range(1, len(counts) + 1))


@every_notebook
def test_no_cell_ended_in_an_error(notebook):
    failed = [cell["id"] for cell in notebook.code for out in cell["outputs"] if out["output_type"] == "error"]
    assert not failed, "break things inside `with expect(Error, match=…)`"


@every_notebook
def test_it_holds_no_widget_state_and_stays_small(notebook):
    assert "widgets" not in notebook.content["metadata"]
    assert notebook.path.stat().st_size < MOST_BYTES


@every_notebook
def test_only_known_tags_are_used_and_none_of_them_skips(notebook):
    unknown = {tag for cell in notebook.cells for tag in tags(cell) if not KNOWN_TAGS.fullmatch(tag)}
    assert not unknown
    assert not [cell["id"] for cell in notebook.code if "NBVAL_" in text(cell)], "use tags, not comments"


@every_notebook
def test_few_cells_are_left_uncompared_and_each_says_why(notebook):
    ignored = [cell for cell in notebook.code if not is_compared(cell)]
    assert len(ignored) <= MOST_IGNORED * len(notebook.code)
    silent = [cell["id"] for cell in ignored if not re.search(r"(?m)^# reason: \S", text(cell))]
    assert not silent, "give each a line `# reason: …`"


@every_notebook
def test_a_cell_fits_the_eye(notebook):
    long = {cell["id"]: n for cell in notebook.code if (n := len(text(cell).splitlines())) > MOST_LINES}
    assert not long, f"more than {MOST_LINES} lines belong in minivllm, where they are tested"


@every_notebook
def test_nothing_tells_where_it_was_built(notebook):
    whole = notebook.path.read_text(encoding="utf-8")
    home = str(Path.home())
    found = re.findall(r"/(?:tmp|home|Users|root|work|mnt|opt|usr)/[\w./-]*|[A-Z]:\\\\\\\\?Users", whole)
    found += [home] if len(home) > 1 and home in whole else []
    assert not found


@every_notebook
def test_outputs_fetch_nothing_from_the_network(notebook):
    for cell in notebook.code:
        for output in cell["outputs"]:
            assert "http" not in re.sub(r"http://www\.w3\.org/[\w/.]*", "", str(output)), cell["id"]


@every_notebook
def test_what_is_compared_holds_nothing_that_changes_from_run_to_run(notebook):
    restless = {
        "an address": r"\b0x[0-9a-f]{7,}",
        "a uuid": r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
        "a float with all its digits": r"\d\.\d{7,}",
        "an object's default repr": r"<[\w.]+ object at ",
    }
    for cell in notebook.code:
        if is_compared(cell):
            for what, pattern in restless.items():
                found = re.search(pattern, printed(cell))
                assert not found, f"{cell['id']} prints {what}: {found and found.group()!r}"


@every_notebook
def test_relative_links_lead_somewhere(notebook):
    for cell in notebook.markdown:
        targets = re.findall(r"\]\(([^)\s]+)[^)]*\)|(?:src|href)=[\"']([^\"']+)", text(cell))
        for target in (html.unescape(one or other) for one, other in targets):
            if re.match(r"https://|mailto:|data:|#|attachment:", target):
                continue
            assert not target.startswith("http:"), f"{cell['id']}: {target} should be https"
            path = target.split("#")[0]
            assert (COURSE / path).exists(), f"{cell['id']}: {path} is not there"


@every_notebook
def test_it_begins_with_one_title_and_every_image_has_words(notebook):
    titles = [line for cell in notebook.markdown for line in text(cell).splitlines() if line.startswith("# ")]
    assert len(titles) == 1
    assert text(notebook.cells[0]).startswith(titles[0])
    for cell in notebook.markdown:
        assert not re.search(r"!\[\s*\]\(|<img(?![^>]*\balt=)", text(cell)), f"{cell['id']}: an image needs an alt text"

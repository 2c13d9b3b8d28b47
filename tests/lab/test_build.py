import json

import pytest

from minivllm.lab.build import main

SOURCE = """\
# %% [markdown]
# # A chapter

# %%
import ipywidgets
from minivllm.lab import predict, reveal
predict("00.test", "How many?")

# %%
print("one")
display(ipywidgets.Button(description="Go"))
print("two")

# %% tags=["nbval-ignore-output"]
# reason: a clock
import time
time.time_ns()
"""


@pytest.fixture
def course(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "00_test.py").write_text(SOURCE)
    return tmp_path


@pytest.fixture
def built(course):
    assert main([], course) == 0
    return json.loads((course / "00_test.ipynb").read_text())


def test_a_notebook_is_run_and_holds_nothing_of_its_run_but_the_outputs(built):
    code = [cell for cell in built["cells"] if cell["cell_type"] == "code"]
    assert [cell["id"] for cell in built["cells"]] == ["cell-000", "cell-001", "cell-002", "cell-003"]
    assert [cell["execution_count"] for cell in code] == [1, 2, 3]
    assert built["metadata"].keys() == {"kernelspec", "language_info"}
    assert "version" not in built["metadata"]["language_info"]
    assert [cell["metadata"] for cell in code] == [{}, {}, {"tags": ["nbval-ignore-output"]}]


def test_widget_models_are_numbered_in_order(built):
    found = [
        data["application/vnd.jupyter.widget-view+json"]["model_id"]
        for cell in built["cells"]
        for output in cell.get("outputs", [])
        if "application/vnd.jupyter.widget-view+json" in (data := output.get("data", {}))
    ]
    assert found == ["widget-000", "widget-001"]


def test_a_second_run_is_the_same_but_for_ignored_cells(course, built, capsys):
    assert main(["--check"], course) == 0
    assert "as its source" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "after", "options", "complaint"),
    [
        ("# # A chapter", "# # Another", ["--no-run"], "cell 0 has another source: now '# Another'"),
        (' tags=["nbval-ignore-output"]', "", ["--no-run"], "cell 3 has another kind, id or tags"),
        ("# %%\nprint", "# %%\n1\n# %%\nprint", ["--no-run"], "cell 2 has another source"),
    ],
)
def test_a_changed_source_is_found_without_running_it(course, built, capsys, before, after, options, complaint):
    (course / "src" / "00_test.py").write_text(SOURCE.replace(before, after))
    assert main(["--check", *options], course) == 1
    assert complaint in capsys.readouterr().out


def test_a_changed_output_is_found_by_running_it(course, built, capsys):
    path = course / "00_test.ipynb"
    path.write_text(path.read_text().replace('"one\\n"', '"1\\n"'))
    assert main(["--check", "--no-run"], course) == 0
    assert main(["--check"], course) == 1
    assert 'cell 2 has another output: now \'"text": "one' in capsys.readouterr().out


def test_a_cell_that_fails_fails_the_build_and_writes_nothing(course, capsys):
    (course / "src" / "00_test.py").write_text("# %%\n1 / 0\n")
    assert main([], course) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert not (course / "00_test.ipynb").exists()


def test_names_choose_chapters_and_a_strange_one_is_refused(course, capsys):
    assert main(["--no-run", "00"], course) == 0
    assert main(["--no-run", "00_test"], course) == 0
    with pytest.raises(SystemExit):
        main(["12"], course)
    assert "no source in" in capsys.readouterr().err

"""Recorded runs say what they are, and a name that is none says which there are."""

import pytest

from minivllm.lab.recorded import FOLDER, recorded


@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.glob("*.json")))
def test_every_recorded_run_says_where_and_how_it_was_made(name):
    run = recorded(name)
    assert run.rows
    assert "NVIDIA" in run.source
    assert "python -m minivllm" in run.source


def test_rows_are_found_by_what_they_are():
    assert [row["batch"] for row in recorded("h200-engine").of("decode step")] == [1, 16, 64, 256]


def test_a_run_that_is_not_there_names_those_that_are():
    with pytest.raises(ValueError, match="h200-engine"):
        recorded("tomorrow")

import pytest

from minivllm.lab import record


def test_what_is_recorded_is_read_back():
    record.record("solved", "03.slot", True)
    record.record("predictions", "03.use", 60.0)
    assert record.load()["solved"] == {"03.slot": True}
    assert record.load()["predictions"] == {"03.use": 60.0}


@pytest.mark.parametrize("damage", ["{", "[]", '{"solved": 3}', "\x00", '{"solved": [1]}'])
def test_a_damaged_file_is_set_aside_and_a_new_one_begun(student_home, capsys, damage):
    student_home.mkdir()
    (student_home / "progress.json").write_text(damage)
    assert record.load()["solved"] == {}
    record.record("solved", "03.slot", True)
    assert record.load()["solved"] == {"03.slot": True}
    if damage != "[]":
        assert (student_home / "progress.json.damaged").read_text() == damage
        assert "could not be read" in capsys.readouterr().err


def test_an_entry_of_a_strange_kind_is_dropped(student_home):
    student_home.mkdir()
    (student_home / "progress.json").write_text('{"predictions": {"a": [1], "b": 2}}')
    assert record.load()["predictions"] == {"b": 2}


def test_a_disk_that_refuses_costs_a_line_and_no_exception(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MINIVLLM_HOME", str(tmp_path / "file" / "below"))
    record.record("solved", "03.slot", True)
    assert "could not be saved" in capsys.readouterr().err


def test_an_unknown_field_is_named():
    with pytest.raises(ValueError, match="predictions, results, solved, hints"):
        record.record("score", "x", 1)

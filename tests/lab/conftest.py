import pytest


@pytest.fixture(autouse=True)
def student_home(tmp_path, monkeypatch):
    """Every test has a student who has done nothing yet."""
    monkeypatch.setenv("MINIVLLM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def exercises(monkeypatch):
    """An empty register, so that these tests and the course's own exercises do not meet."""
    from minivllm.lab import grading

    monkeypatch.setattr(grading, "_exercises", {})
    monkeypatch.setattr(grading.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(grading.pkgutil, "iter_modules", lambda path: [])

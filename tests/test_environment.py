"""What a bare machine is told to install: pinned once, complete, and the same in every file that names it."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
UNPINNED = {"triton", "minivllm", "pip"}  # triton: each torch names its own


def requirements(lines: list[str]) -> list[Requirement]:
    return [Requirement(line) for line in lines]


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = requirements([line for line in lines if line and not line.startswith("#")])
    return {plain(one.name): one for one in found}


def named() -> list[Requirement]:
    extras = [line for group in PROJECT["optional-dependencies"].values() for line in group]
    return requirements([*PROJECT["dependencies"], *extras])


def everything_installed(start: list[Requirement]) -> set[str]:
    """The named distributions and all they need here, by the metadata of what is installed."""
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        one = waiting.pop()
        name = plain(one.name)
        needed = one.marker is None or any(one.marker.evaluate({"extra": e}) for e in (*one.extras, ""))
        if name in seen or not needed:
            continue
        try:
            below = metadata.requires(one.name) or []
        except metadata.PackageNotFoundError:  # an optional part that nothing here asked for
            continue
        seen.add(name)
        for line in below:
            child = Requirement(line)
            if child.marker is None or any(child.marker.evaluate({"extra": e}) for e in (*one.extras, "")):
                child.marker = None
                waiting.append(child)
    return seen


def test_every_constraint_is_one_exact_version():
    for one in constraints().values():
        assert [spec.operator for spec in one.specifier] == ["=="], f"{one} does not pin one version"


def test_everything_that_gets_installed_is_pinned_except_triton():
    loose = everything_installed(named()) - constraints().keys() - UNPINNED
    assert not loose, f"not in constraints.txt: {', '.join(sorted(loose))}"
    assert "triton" not in constraints()


@pytest.mark.parametrize("one", [one for one in named() if plain(one.name) in constraints()], ids=str)
def test_a_pin_satisfies_what_pyproject_asks_for(one):
    (pin,) = constraints()[plain(one.name)].specifier
    assert one.specifier.contains(Version(pin.version))


def test_pythons_are_those_that_the_workflow_tries():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert PROJECT["requires-python"] == ">=3.11,<3.14"
    assert 'python: ["3.11", "3.12", "3.13"]' in workflow


def test_the_conda_file_installs_the_same_package_by_the_same_constraints():
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    assert "- -c constraints.txt" in text
    assert "- -e .[course,test]" in text
    assert re.search(r"python=3\.1[123]\b", text)


def test_the_packaged_version_is_the_one_of_the_changelog():
    import minivllm

    assert minivllm.__version__ == PROJECT["version"]
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_top_level_holds_nothing_that_was_not_agreed():
    agreed = {
        "course", "minivllm", "assets", "tests", "environment.yml", "README.md", "pyproject.toml",
        "constraints.txt", "Makefile", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "conftest.py",
    }  # fmt: skip
    made = {"minivllm.egg-info", "build", "dist", "__pycache__"}
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert not found - agreed - made


def test_every_pin_takes_the_oldest_python():
    """Where one does not, pip has nothing to install, and looks for another combination without end."""
    oldest = next(spec.version for spec in SpecifierSet(PROJECT["requires-python"]) if spec.operator == ">=")
    for name in sorted(everything_installed(named()) & constraints().keys()):
        wants = metadata.metadata(name)["Requires-Python"] or ""
        assert SpecifierSet(wants).contains(f"{oldest}.0"), f"{name} needs Python {wants}"

"""Every exercise: unsolved it shows ○, solved ✓, and at least three mistakes each show ✗ with their hint.

An exercise has four parts, tied together by its name, here "03.slot":

1. the chapter's cell that a student fills in, and a cell `check("03.slot", slot)`;
2. the folded solution, a markdown cell tagged `solution:03.slot` with one ```python fence;
3. the checker, `@exercise("03.slot", hints=[…])` in minivllm/lab/exercises/ch03.py;
4. the mistakes, `MUTANTS["03.slot"]` in tests/course/mutants/ch03.py (see its package).

The solution (or mutant) is written to a file, after the chapter's import statements, and imported from there,
so that Triton can read its source; then what `check` was given is graded. A solution needs nothing else from
its chapter.
"""

import ast
import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mutants import Mutant
from notebooks import NOTEBOOKS, Notebook, printed, tags, text

from minivllm.lab.grading import Verdict, all_exercises, grade

LEAST_MUTANTS = 3


@dataclass(frozen=True)
class Task:
    """What a chapter says about one exercise."""

    name: str
    notebook: Notebook
    answer: str  # the second argument of check(...), as source
    shown: str  # what the committed cell printed

    @property
    def solution(self) -> str:
        cells = [text(cell) for cell in self.notebook.markdown if f"solution:{self.name}" in tags(cell)]
        assert len(cells) == 1, f"{self.notebook.path.name} needs one markdown cell tagged solution:{self.name}"
        fences = re.findall(r"```python\n(.*?)```", cells[0], re.DOTALL)
        assert len(fences) == 1, f"the solution of {self.name} needs one ```python fence"
        assert "<details>" in cells[0], f"the solution of {self.name} is not folded"
        return fences[0]

    @property
    def imports(self) -> str:
        """The import statements of the chapter, which a solution may rely on."""
        found = []
        for cell in self.notebook.code:
            found += [ast.unparse(node) for node in ast.parse(text(cell)).body if _is_import(node)]
        return "\n".join(dict.fromkeys(found))


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def tasks() -> dict[str, Task]:
    found = {}
    for notebook in NOTEBOOKS:
        for cell in notebook.code:
            for node in ast.walk(ast.parse(text(cell))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "check":
                    name = ast.literal_eval(node.args[0])
                    found[name] = Task(name, notebook, ast.unparse(node.args[1]), printed(cell))
    return found


def mutants() -> dict[str, list[Mutant]]:
    found: dict[str, list[Mutant]] = {}
    for path in sorted((Path(__file__).parent / "mutants").glob("ch[0-9][0-9].py")):
        found |= importlib.import_module(f"mutants.{path.stem}").MUTANTS
    return found


TASKS = tasks()
MUTANTS = mutants()
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())


def verdict_on(task: Task, source: str, folder: Path) -> Verdict:
    """What `check` says when the student's cell holds `source`."""
    path = folder / f"answer_{task.name.replace('.', '_')}.py"
    path.write_text(f"{task.imports}\n\n{source}\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    answer: Any = eval(task.answer, vars(module))
    return grade(task.name, answer)


def test_chapters_checkers_and_mutants_name_the_same_exercises():
    registered = {one.name for one in all_exercises()}
    assert registered == TASKS.keys()
    assert registered == MUTANTS.keys()
    assert all(name[:2] == task.notebook.path.stem[:2] for name, task in TASKS.items())


@every_task
def test_it_is_handed_out_unsolved_and_green(task):
    marks = [line for line in task.shown.splitlines() if line[:1] in {"○", "✓", "✗"}]
    assert marks
    assert set(marks) == {"○ not attempted"}


@every_task
def test_the_folded_solution_is_right(task, tmp_path):
    verdict = verdict_on(task, task.solution, tmp_path)
    assert verdict.status == "✓", verdict


@pytest.mark.parametrize(
    ("name", "mutant"),
    [(name, mutant) for name, several in MUTANTS.items() for mutant in several],
    ids=lambda value: value if isinstance(value, str) else value.mistake,
)
def test_a_mistake_is_seen_and_named(name, mutant, tmp_path):
    verdict = verdict_on(TASKS[name], mutant.of(TASKS[name].solution), tmp_path)
    assert verdict.status == "✗", verdict
    assert mutant.says in verdict.words


@pytest.mark.parametrize("name", MUTANTS)
def test_it_has_mistakes_enough(name):
    assert len({mutant.mistake for mutant in MUTANTS[name]}) >= LEAST_MUTANTS

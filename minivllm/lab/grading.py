"""How an exercise is graded: a checker receives what the student wrote, and praises it or names the mistake.

A chapter's checkers are plain functions in `minivllm/lab/exercises/chNN.py`:

    @exercise("03.slot", hints=["which block?", "pos // B …", "table[pos // B] * B + …"])
    def slot(student: Callable[[list[int], int, int], int]) -> str:
        got = student([7, 2], 5, 4)
        require(got == 9, f"position 5 with block_size 4: table[1] = 2, offset 1, so slot 9, not {got}")
        return "every position is found"

A checker raises `Wrong(hint)` (or calls `require`) and returns the words of praise. Code that still returns
`...` or raises NotImplementedError has not been attempted, and is neither right nor wrong.
"""

import functools
import importlib
import importlib.util
import inspect
import linecache
import pkgutil
import re
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from minivllm.allowed import shown

Status = Literal["○", "✓", "✗"]
Checker = Callable[[Any], str]
NOT_THEIRS = (str(Path(__file__).parents[1]), *(sysconfig.get_path(of) for of in ("stdlib", "purelib", "platlib")))
"""Where code lies that no student wrote."""


class Wrong(Exception):
    """The answer is wrong, and the message is a hint that names the mistake."""


class NotAttempted(Exception):
    """The exercise still is as it was handed out."""


@dataclass(frozen=True)
class Exercise:
    """One exercise: its name ("03.slot"), three hints from gentle to nearly the answer, and its checker."""

    name: str
    hints: tuple[str, str, str]
    checker: Checker


@dataclass(frozen=True)
class Verdict:
    """What `check` prints: a status and a sentence."""

    status: Status
    words: str

    def __str__(self) -> str:
        return f"{self.status} {self.words}"


_exercises: dict[str, Exercise] = {}


def exercise(name: str, hints: Sequence[str]) -> Callable[[Checker], Checker]:
    """Register the decorated function as the checker of `name` ("NN.what"), with its three graded hints.

    Raises ValueError for a name without chapter, or for other than three hints.
    """
    if not re.fullmatch(r"\d\d\.\w+", name):
        raise ValueError(f"exercise name is {name!r}; allowed: two digits of the chapter, a dot, a word: '03.slot'")
    if len(hints) != 3:
        raise ValueError(f"exercise {name} has {len(hints)} hints; allowed: three, from gentle to nearly the answer")

    def register(checker: Checker) -> Checker:
        _exercises[name] = Exercise(name, (hints[0], hints[1], hints[2]), checker)
        return checker

    return register


def find(name: str) -> Exercise:
    """The exercise called `name`. Raises ValueError listing the chapter's exercises if there is none."""
    chapter = name[:2]
    if chapter.isdigit():
        module = f"minivllm.lab.exercises.ch{chapter}"
        if importlib.util.find_spec(module):
            importlib.import_module(module)
    if name not in _exercises:
        known = sorted(other for other in _exercises if other[:2] == chapter) or sorted(_exercises)
        raise ValueError(f"no exercise is called {name!r}; there are: {', '.join(known) or 'none'}")
    return _exercises[name]


def all_exercises() -> list[Exercise]:
    """Every exercise of the course, in order of chapter and then as its file lists them."""
    package = importlib.import_module("minivllm.lab.exercises")
    for module in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
        importlib.import_module(f"minivllm.lab.exercises.{module}")
    return sorted(_exercises.values(), key=lambda one: one.name[:2])


def require(condition: bool, hint_if_not: str) -> None:
    """Raise `Wrong(hint_if_not)` unless `condition` holds."""
    if not condition:
        raise Wrong(hint_if_not)


def returned(got: Any) -> Any:
    """`got`, what a student's function gave back, where None is never right. Raises `Wrong` for None."""
    require(got is not None, "your function returned None; is a `return` missing?")
    return got


def grade(name: str, answer: Any) -> Verdict:
    """Check `answer` (a value, a function, a class) against the exercise, and print nothing."""
    checker = find(name).checker
    results: list[Any] = []
    try:
        return Verdict("✓", checker(_watched(answer, results)))
    except (NotAttempted, NotImplementedError):
        return Verdict("○", "not attempted")
    except Wrong as wrong:
        return Verdict("✗", str(wrong))
    except Exception as error:
        return Verdict("✗", _blame(error, answer, results))


def _blame(error: Exception, answer: Any, results: list[Any]) -> str:
    """Whether the student's code raised the error, or what it gave back was of no use to the checker."""
    if isinstance(answer, type):
        if isinstance(error.__cause__, StopIteration):  # `next` on nothing, inside a generator of ours
            error = error.__cause__
        where = _own_line(error)
        return (
            f"your code raised {in_short(error)} ({where})"
            if where
            else f"your class cannot be used ({in_short(error)})"
        )
    if not callable(answer) and isinstance(error, TypeError) and "not callable" in str(error):
        return f"give the function itself, its name without brackets, not {shown(answer)}"
    code = getattr(answer, "__code__", None)
    inside = code is None or any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__))
    if inside or not results:
        return f"your code raised {in_short(error)}{_line_of(error, answer)}"
    missing = "; is a `return` missing?" if results[-1] is None else ""
    return (
        f"your function returned {shown(results[-1])}, and nothing can be done with that ({in_short(error)}){missing}"
    )


def _watched(answer: Any, results: list[Any]) -> Any:
    """`answer`, but a plain value or a result of `...` means that nobody has begun. `results`: the last one it gave."""
    if answer is ...:
        raise NotAttempted
    if not inspect.isfunction(answer):
        return answer

    @functools.wraps(answer)
    def watch(*args: Any, **kwargs: Any) -> Any:
        result = answer(*args, **kwargs)
        if result is ...:
            raise NotAttempted
        results[:] = [result]
        return result

    return watch


def in_short(error: BaseException) -> str:
    """The kind of an error and the first line of its message: "KeyError: 'x'"."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _own_line(error: BaseException) -> str:
    """Where in the methods of a student's class, or in functions they call, it happened; "" if nowhere."""
    codes = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    named = [(code, line) for code, line in codes if not code.co_name.startswith("<")]  # not a lambda: its `def`
    theirs = [(code, line) for code, line in named if not code.co_filename.startswith((*NOT_THEIRS, "<string>"))]
    if not theirs:
        return ""
    code, line = theirs[-1]
    words = linecache.getline(code.co_filename, line).strip()
    return f"line {line - code.co_firstlineno + 1} of `{code.co_name}`: {words}"


def _line_of(error: BaseException, answer: Any) -> str:
    """Where in the student's own function it happened: " (line 3: return table[pos])", or nothing.

    A kernel is run as a copy of its source in another file, where line numbers say nothing to its author.
    """
    code = getattr(getattr(answer, "fn", answer), "__code__", None)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if code is not None and frame.filename == code.co_filename and frame.lineno is not None:
            return f" (line {frame.lineno - code.co_firstlineno + 1}: {frame.line})"
        if code is not None and hasattr(answer, "fn") and frame.name == code.co_name:
            return f" (in the line: {frame.line})"
    return ""

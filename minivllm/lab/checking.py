"""What a student calls beside an exercise: `check` for a verdict, `hint` for help, `progress` for the score.

`check("03.slot", slot)` prints one line: `○ not attempted`, `✓ …`, or `✗ …` with what is wrong.
"""

from typing import Any

from minivllm.lab import record
from minivllm.lab.grading import all_exercises, find, grade


def check(name: str, answer: Any) -> None:
    """Print the verdict on `answer`: `○ not attempted`, `✓ …` or `✗ …` and what is wrong."""
    result = grade(name, answer)
    if result.status == "✓":
        record.record("solved", name, True)
    print(result)


def hint(name: str, n: int = 1) -> None:
    """Print hint `n`, from gentle (1) to nearly the answer (3). Raises ValueError for another `n`."""
    if n not in (1, 2, 3):
        raise ValueError(f"hint number is {n!r}; allowed: 1, 2 or 3")
    text = find(name).hints[n - 1]
    record.record("hints", name, max(n, record.load()["hints"].get(name, 0)))
    print(f"hint {n} of 3: {text}")


def progress(chapter: str | None = None) -> None:
    """Print the course so far, a line per chapter: exercises (✓ or ○), predictions made, hints used.

    With `chapter` ("03") only that one, so that a chapter's output does not depend on the others.
    Raises ValueError for a chapter that has neither exercises nor predictions.
    """
    known = record.load()
    by_chapter: dict[str, list[str]] = {}
    for one in all_exercises():
        by_chapter.setdefault(one.name[:2], []).append(one.name)
    for other in sorted({key[:2] for key in known["predictions"]} - by_chapter.keys()):
        by_chapter[other] = []
    if chapter is not None:
        if chapter not in by_chapter:
            raise ValueError(f"chapter is {chapter!r}; allowed: {', '.join(sorted(by_chapter))}")
        by_chapter = {chapter: by_chapter[chapter]}
    for one_chapter in sorted(by_chapter):
        names = by_chapter[one_chapter]
        marks = [f"{'✓' if known['solved'].get(name) else '○'} {name[3:]}" for name in names]
        hints = sum(known["hints"].get(name, 0) for name in names)
        made = sum(key[:2] == one_chapter for key in known["predictions"])
        print(f"{one_chapter}  {'  '.join(marks) or '–'}   predictions {made}, hints {hints}")
    solved = sum(bool(known["solved"].get(name)) for names in by_chapter.values() for name in names)
    print(f"solved {solved} of {sum(map(len, by_chapter.values()))}")

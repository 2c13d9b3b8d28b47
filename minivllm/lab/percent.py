"""The percent format, in which the chapters are written: a notebook as a plain Python file.

A line `# %%` begins a code cell, `# %% [markdown]` a text cell whose lines are comments. Either may carry
tags: `# %% tags=["nbval-ignore-output"]`. Empty cells vanish.
"""

import json
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

MARKER = re.compile(r"# %%(?P<markdown> \[markdown\])?(?: tags=(?P<tags>\[.*\]))?")


class Cell(NamedTuple):
    """One cell of a source file."""

    kind: Literal["code", "markdown"]
    tags: list[str]
    source: str


def parse(text: str) -> Iterator[Cell]:
    """The cells of a source. Raises ValueError, with the line, for what the format does not allow."""
    cell: Cell | None = None
    lines: list[str] = []
    for number, line in enumerate([*text.splitlines(), "# %%"], start=1):
        if not line.startswith("# %%"):
            lines.append(_uncommented(line, number) if cell and cell.kind == "markdown" else line)
            continue
        source = "\n".join(lines).strip("\n")
        if source and cell is None:
            raise ValueError(f"line {number}: text before the first cell: {source.splitlines()[0]!r}")
        if source and cell:
            yield cell._replace(source=source)
        cell, lines = _begin(line.rstrip(), number), []


def _begin(line: str, number: int) -> Cell:
    marker = MARKER.fullmatch(line)
    if marker is None:
        allowed = '# %% or # %% [markdown], then tags=["…"] or nothing'
        raise ValueError(f"line {number}: {line!r}; allowed: {allowed}")
    return Cell("markdown" if marker["markdown"] else "code", json.loads(marker["tags"] or "[]"), "")


def _uncommented(line: str, number: int) -> str:
    if line and line != "#" and not line.startswith("# "):
        raise ValueError(f"line {number}: a markdown cell holds comments only, not {line!r}")
    return line[2:]

"""The notebooks as the tests in this folder see them: every `course/NN_name.ipynb`, read once."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COURSE = ROOT / "course"
IGNORED = "nbval-ignore-output"


@dataclass(frozen=True)
class Notebook:
    path: Path

    @cached_property
    def content(self) -> dict[str, Any]:
        return json.loads(self.path.read_text(encoding="utf-8"))

    @property
    def cells(self) -> list[dict[str, Any]]:
        return self.content["cells"]

    @property
    def code(self) -> list[dict[str, Any]]:
        return [cell for cell in self.cells if cell["cell_type"] == "code"]

    @property
    def markdown(self) -> list[dict[str, Any]]:
        return [cell for cell in self.cells if cell["cell_type"] == "markdown"]

    @property
    def source(self) -> Path:
        return COURSE / "src" / f"{self.path.stem}.py"


def text(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def tags(cell: dict[str, Any]) -> list[str]:
    return cell["metadata"].get("tags", [])


def is_compared(cell: dict[str, Any]) -> bool:
    return IGNORED not in tags(cell)


def printed(cell: dict[str, Any]) -> str:
    """All that nbval compares of a cell's outputs, as one text."""
    parts = []
    for output in cell["outputs"]:
        parts.append("".join(output.get("text", "")))
        for mime, data in output.get("data", {}).items():
            if mime.startswith("text/"):
                parts.append("".join(data))
            elif mime.endswith("+json") and "widget-view" not in mime:
                parts.append(json.dumps(data))
        parts.append(output.get("evalue", ""))
    return "\n".join(parts)


NOTEBOOKS = [Notebook(path) for path in sorted(COURSE.glob("[0-9][0-9]_*.ipynb"))]

"""Runs on a large GPU, recorded for those who have none: the rows of a `bench` command, and where they come from."""

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[2] / "assets" / "recorded"


class Recorded(NamedTuple):
    """`rows` as the command printed them; `source`: card, versions, date and command in one line."""

    rows: list[dict[str, Any]]
    source: str

    def of(self, what: str) -> list[dict[str, Any]]:
        """The rows of one kind, "decode step" say."""
        return [row for row in self.rows if row.get("what") == what]


def recorded(name: str) -> Recorded:
    """The run of that name: `recorded("h200-engine")`. Raises `ValueError` naming those there are."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        there = ", ".join(sorted(file.stem for file in FOLDER.glob("*.json"))) or "none"
        raise ValueError(f"no recorded run {name!r}; there are {there}")
    told = json.loads(path.read_text(encoding="utf-8"))
    where = told["where"]
    versions = f"torch {where['torch']}, triton {where['triton']}"
    return Recorded(told["rows"], f"{where['card']}, {versions}, {where['date']}: {where['command']}")

"""A table that says where it comes from."""

import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any, NamedTuple

Cell = str | int | float | None


class Chart(NamedTuple):
    """How to draw a table: `kind` "bar" or "line", one trace per column of `y`, or per value of the column `by`."""

    kind: str
    x: str
    y: tuple[str, ...]
    by: str | None = None
    title: str = ""


@dataclass
class Result:
    """Rows under columns, the claim they test, and notes on what was assumed.

    `signed` says how the table was made: experiment, command, seed, machine, versions.
    """

    title: str
    claim: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    notes: list[str] = field(default_factory=list)
    chart: Chart | None = None
    signed: dict[str, Any] = field(default_factory=dict)

    def column(self, name: str) -> list[Any]:
        """The values of one column. Raises `ValueError` naming those there are."""
        if name not in self.columns:
            raise ValueError(f"column is {name!r}; there are {', '.join(self.columns)}")
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def to_text(self) -> str:
        """The table, aligned, with its claim above and its notes below."""
        cells = [list(self.columns), *([_shown(cell) for cell in row] for row in self.rows)]
        widths = [max(len(line[at]) for line in cells) for at in range(len(self.columns))]
        numeric = [all(isinstance(row[at], int | float | None) for row in self.rows) for at in range(len(self.columns))]
        lines = [
            "  ".join(cell.rjust(w) if n else cell.ljust(w) for cell, w, n in zip(line, widths, numeric, strict=True))
            for line in cells
        ]
        lines.insert(1, "  ".join("-" * width for width in widths))
        text = [self.title, f"claim: {self.claim}", "", *(line.rstrip() for line in lines), ""]
        return "\n".join([*text, *(f"* {note}" for note in self.notes)]).rstrip()

    def __str__(self) -> str:
        return self.to_text()

    def to_json(self) -> str:
        """The same, with the signature, as JSON."""
        return json.dumps(asdict(self), indent=1)

    def sign(self, name: str, options: dict[str, Any], seed: int | None) -> None:
        """Write down how this table was made; `options` are those given, `seed` None where nothing is drawn."""
        if set(options) <= {"model", "device"}:
            command = " ".join([f"python -m minivllm experiment {name}", *(f"--{k} {v}" for k, v in options.items())])
        else:
            given = "".join(f", {key}={value!r}" for key, value in options.items())
            command = f"minivllm.lab.experiments.run({name!r}{given})"
        self.signed = {
            "experiment": name,
            "command": command,
            "seed": seed,
            "machine": machine(),
            "versions": {"python": platform.python_version(), **_versions("minivllm", "torch", "triton", "numpy")},
        }

    def figure(self) -> Any:
        """A plotly figure of the table, on a transparent ground. Raises `ValueError` when the table has no chart."""
        import plotly.graph_objects as go

        if self.chart is None:
            raise ValueError(f"{self.title!r} is a table only; print it")
        kind, x, ys, by, title = self.chart
        figure = go.Figure()
        for key in dict.fromkeys(self.column(by)) if by else (None,):
            rows = [at for at in range(len(self.rows)) if key is None or self.column(by or "")[at] == key]
            for y in ys:
                data = {"x": [self.column(x)[at] for at in rows], "y": [self.column(y)[at] for at in rows]}
                name = " ".join(
                    str(part)
                    for part in (
                        key if by is None or isinstance(key, str) else f"{by} {key}",
                        y if len(ys) > 1 or key is None else None,
                    )
                    if part is not None
                )
                figure.add_trace(go.Bar(**data, name=name) if kind == "bar" else go.Scatter(**data, name=name))
        figure.update_layout(
            template="none",
            paper_bgcolor="rgba(0,0,0,0)",
            plot_bgcolor="rgba(0,0,0,0)",
            title=title or self.title,
            xaxis={"title": x, **(_doubling(self.column(x)) if kind == "line" else {"type": "category"})},
            yaxis={"title": ", ".join(ys) if len(ys) < 3 else None, "rangemode": "tozero"},
        )
        return figure


def _doubling(values: Sequence[Any]) -> dict[str, Any]:
    """An axis on which a doubling is a step of one length, marked at the measured values."""
    marks = sorted(set(values))
    return {"type": "log", "tickvals": marks, "ticktext": [f"{mark:,}" for mark in marks]}


def machine() -> str:
    """Processor, and the GPU where torch is loaded and sees one."""
    cpu = f"{platform.machine()}, {platform.system()}"
    torch = sys.modules.get("torch")
    return f"{torch.cuda.get_device_name()}; {cpu}" if torch and torch.cuda.is_available() else f"CPU; {cpu}"


def _versions(*packages: str) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _shown(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.4g}" if abs(cell) < 1 else f"{cell:.2f}"
    return f"{cell:,}" if isinstance(cell, int) else cell

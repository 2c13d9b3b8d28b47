"""The memory strips without a browser: a table in plain text, and the strips as an SVG card."""

from collections.abc import Sequence
from typing import Any

from minivllm.viz.palette import LIGHT
from minivllm.viz.svg import document, rect, text, wrap

WIDTH, LEFT, STRIP = 720, 92, 400
MARKS = {"used": "#", "later": "+", "never": "x", "hole": "_", "free": "."}
WORDS = {"later": "later", "never": "never", "hole": "holes", "free": "free"}
LOOK = {
    "used": (LIGHT.ink2, LIGHT.ink2, {}),
    "later": ("url(#hatch)", LIGHT.ink2, {}),
    "never": (LIGHT.loss_tint, LIGHT.loss, {}),
    "hole": (LIGHT.bg, LIGHT.loss, {"stroke-dasharray": "4 3"}),
    "free": (LIGHT.bg, LIGHT.line, {"stroke-dasharray": "1 3"}),
}
Row = tuple[str, dict[str, int], dict[str, Any]]
"""Name, percent by kind, and the frame's row."""


def shares(percent: dict[str, int]) -> str:
    """`25 % later, 29 % never, 9 % holes`."""
    return ", ".join(f"{percent[kind]} % {word}" for kind, word in WORDS.items() if percent[kind])


def table(tick: int, say: str, rows: Sequence[Row], slots: int, columns: int = 64) -> str:
    """One strip of characters per row: `#` holds K and V, `+` later, `x` never, `_` hole, `.` free."""
    lines = [f"Tick {tick}. {say}", "# holds K and V   + promised, later   x promised, never   _ hole   . free"]
    for name, percent, row in rows:
        marks = [" "] * columns
        for kind, at, size, _ in row["pieces"]:
            for c in range(round(at * columns / slots), round((at + size) * columns / slots)):
                marks[c] = MARKS[kind]
        lines.append(f"{name:>7}  {''.join(marks)}")
        lines.append(f"{'':>7}  {len(row['running'])} running, {percent['used']} % used, {shares(percent)}")
    return "\n".join(lines)


def card(tick: int, say: str, rows: Sequence[Row], slots: int) -> str:
    """The same as a picture, to scale."""
    lines = wrap(say, 84)
    top = 72 + 22 * len(lines)
    parts = [text(24, 40, f"Tick {tick}", 22, weight=650)]
    parts += [text(24, 66 + 22 * at, line, 15) for at, line in enumerate(lines)]
    for at, (name, percent, row) in enumerate(rows):
        y, unit = top + at * 46, STRIP / slots
        parts.append(text(24, y + 18, name, 13, weight=600))
        for kind, start, size, _ in row["pieces"]:
            fill, edge, more = LOOK[kind]
            parts.append(rect(LEFT + start * unit, y, size * unit, 28, fill, edge, rx=0, **more))
        numbers = f"{len(row['running'])} running, {percent['used']} % used"
        parts.append(text(LEFT + STRIP + 16, y + 12, numbers, 12, weight=600))
        parts.append(text(LEFT + STRIP + 16, y + 27, shares(percent), 10, LIGHT.ink2))
    return document(WIDTH, top + len(rows) * 46 + 8, parts)

"""One routing decision for readers without a kernel: as a table in characters, and as a light card."""

from typing import Any

from minivllm.narrate import count
from minivllm.viz import static
from minivllm.viz.palette import LIGHT, Colour
from minivllm.viz.svg import document, glyph, rect, text, wrap

POOL, KNOWN, RIGHT = 170.0, 432.0, 696.0
"""Where the strips of the pool and of the known tokens begin, and where the card's text ends."""


def as_text(told: dict[str, Any], frame: dict[str, Any], say: str) -> str:
    """The sentence and a row per replica; `>` marks the one the request went to."""
    lines = [say, f"{'replica':>9}{'load':>6}{'in use':>8}{'cached':>8}{'free':>7}{'knows':>8}   so far"]
    for n, load in enumerate(frame["loads"]):
        used, cached, free = _shares(told, frame, n)
        mark, knows = ">" if frame["to"] == n else "", frame["found"][n] if frame["to"] is not None else "-"
        lines.append(f"{mark:>3}{n:>6}{load:>6}{used:>8}{cached:>8}{free:>7}{knows:>8}   {_sofar(frame, n)}")
    return "\n".join([*lines, told["about"]])


def as_svg(told: dict[str, Any], frame: dict[str, Any], headline: str, say: str, title: str) -> str:
    """The sentence, and per replica its load, its pool to scale, and what it knows of the prompt to scale."""
    lines = wrap(say, 84)
    parts = [
        text(24, 40, headline, 22, weight=650),
        text(RIGHT, 40, title or told["name"], 12, LIGHT.ink3, anchor="end"),
    ]
    parts += [text(24, 66 + 22 * at, line, 15) for at, line in enumerate(lines)]
    y = 66.0 + 22 * len(lines)
    for n, load in enumerate(frame["loads"]):
        chosen = frame["to"] == n
        if chosen:
            parts += [rect(14, y, 692, 62, "none", LIGHT.ink, rx=8, **{"stroke-width": "2"})]
            parts += [glyph("arrive", 150, y + 18, 12, LIGHT.ink)]
        used, cached, free = _shares(told, frame, n)
        knows = "" if frame["to"] is None else f"knows {frame['found'][n]:,} of {frame['tokens']:,}"
        again = f", computes {frame['lost']:,} again" if chosen and frame["lost"] else ""
        parts += [text(24, y + 23, f"Replica {n}", 13, weight=600), text(24, y + 45, count(load, "request"), 12, LIGHT.ink2),
                  *_pool(told, frame, n, y + 10), *_known(frame, n, y + 10),
                  text(POOL, y + 48, f"{used:,} in use, {cached:,} cached, {free:,} free", 12, LIGHT.ink2),
                  text(KNOWN, y + 48, knows + again, 12, LIGHT.loss_text if again else LIGHT.ink2)]  # fmt: skip
        y += 70
    parts.append(text(24, y + 12, told["about"], 12, LIGHT.ink3))
    return document(static.WIDTH, y + 28, parts)


def _shares(told: dict[str, Any], frame: dict[str, Any], n: int) -> tuple[int, int, int]:
    """Blocks in use, cached and free."""
    used, cached = (sum(k for kind, _, k in frame["pools"][n] if kind == state) for state in ("used", "cached"))
    return used, cached, told["blocks"][n] - used - cached


def _sofar(frame: dict[str, Any], n: int) -> str:
    requests, known, tokens = frame["sums"][n]
    return f"{count(requests, 'request')}, {known:,} of {count(tokens, 'token')} known" if requests else "nothing yet"


def _pool(told: dict[str, Any], frame: dict[str, Any], n: int, y: float) -> list[str]:
    parts, x, unit = [], POOL, (KNOWN - POOL - 24) / told["blocks"][n]
    for state, tone, blocks in frame["pools"][n]:
        colour = _colour(tone)
        parts.append(rect(x, y, blocks * unit, 22, colour.fill if state == "used" else colour.tint, colour.edge))
        parts.append(rect(x, y, blocks * unit, 22, "url(#hatch)", colour.edge) if state == "cached" else "")
        x += blocks * unit
    return [*parts, rect(x, y, KNOWN - 24 - x, 22, "none", LIGHT.line, rx=0, **static.DOTTED)]


def _known(frame: dict[str, Any], n: int, y: float) -> list[str]:
    if frame["to"] is None:
        return []
    colour, unit, found = _colour(frame["tone"]), (RIGHT - KNOWN) / frame["tokens"], frame["found"][n]
    lost = frame["lost"] if frame["to"] == n else 0
    rest = frame["tokens"] - found - lost
    ends = (KNOWN + found * unit, KNOWN + (found + lost) * unit)
    look = ("url(#hatch)", colour.edge, {}) if frame["to"] == n else ("none", LIGHT.line, static.DOTTED)
    return [
        rect(KNOWN, y, found * unit, 22, colour.fill, colour.edge) if found else "",
        rect(ends[0], y, lost * unit, 22, LIGHT.loss_tint, LIGHT.loss) if lost else "",
        rect(ends[1], y, rest * unit, 22, look[0], look[1], rx=0, **look[2]) if rest else "",
    ]


def _colour(tone: int) -> Colour:
    return LIGHT.requests[tone] if tone >= 0 else Colour(LIGHT.line, LIGHT.raised, LIGHT.line, LIGHT.bg)

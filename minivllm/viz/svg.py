"""SVG as strings, in the light palette, for pictures that must look the same everywhere; all text is escaped."""

from collections.abc import Iterable
from html import escape

from minivllm.viz.glyphs import GLYPHS
from minivllm.viz.palette import LIGHT

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def document(width: float, height: float, parts: Iterable[str]) -> str:
    """A card: page colour, hairline, and the pattern `url(#hatch)`."""
    hatch = (
        '<defs><pattern id="hatch" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="1.4" height="4" fill="{LIGHT.line}"/></pattern></defs>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="{FONT}">'
        + hatch
        + rect(0, 0, width, height, LIGHT.bg, LIGHT.hair, rx=8)
        + "".join(parts)
        + "</svg>"
    )


def rect(x: float, y: float, w: float, h: float, fill: str, stroke: str, *, rx: float = 0, **more: str) -> str:
    """A rectangle with its 1 px outline inside."""
    extra = "".join(f' {name}="{value}"' for name, value in more.items())
    size = f'width="{max(0.0, w - 1):g}" height="{max(0.0, h - 1):g}"'
    return f'<rect x="{x + 0.5:g}" y="{y + 0.5:g}" {size} rx="{rx:g}" fill="{fill}" stroke="{stroke}"{extra}/>'


def squares(corners: Iterable[tuple[float, float]], side: float, fill: str, stroke: str, **more: str) -> str:
    """Many squares that look alike as one path: a pool of thousands of blocks stays a small file."""
    d = "".join(f"M{x + 0.5:g} {y + 0.5:g}h{side - 1:g}v{side - 1:g}h{1 - side:g}z" for x, y in corners)
    return f'<path d="{d}" fill="{fill}" stroke="{stroke}"' + "".join(f' {k}="{v}"' for k, v in more.items()) + "/>"


def circle(x: float, y: float, r: float, fill: str, stroke: str = "none") -> str:
    """A circle centred on (x, y)."""
    return f'<circle cx="{x:g}" cy="{y:g}" r="{r:g}" fill="{fill}" stroke="{stroke}"/>'


def text(
    x: float, y: float, words: str, size: float, fill: str = LIGHT.ink, *, weight: int = 400, anchor: str = "start",
    mono: bool = False,
) -> str:  # fmt: skip
    """One line of text; (x, y) is on its baseline, at its `anchor`."""
    font = f' font-family="{MONO}"' if mono else ""
    style = f'font-size="{size:g}" font-weight="{weight}" text-anchor="{anchor}" fill="{fill}"{font}'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def glyph(kind: str, x: float, y: float, size: float, stroke: str, width: float = 1.6) -> str:
    """A glyph centred on (x, y)."""
    at = f"translate({x - size / 2:g},{y - size / 2:g}) scale({size / 12:g})"
    style = f'fill="none" stroke="{stroke}" stroke-width="{width}" stroke-linecap="round"'
    return f'<g transform="{at}" {style}>{GLYPHS[kind]}</g>'


def wrap(words: str, width: int) -> list[str]:
    """Lines of at most `width` characters, broken at spaces."""
    lines = [""]
    for word in words.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines

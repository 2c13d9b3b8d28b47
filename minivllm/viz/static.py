"""A picture of the pool that needs no browser: an ASCII map, and a small SVG card inside an `<img>`.

Deterministic, so notebooks can compare it; an `<img>` with a data URI is all that an untrusted notebook still shows.
"""

from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from html import escape

from minivllm.narrate import count
from minivllm.snapshot import BlockView, Snapshot
from minivllm.viz.glyphs import GLYPHS
from minivllm.viz.palette import LIGHT, Colour

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
WIDTH = 720


def mark(block: BlockView, evicted: Collection[int] = ()) -> str:
    """One character for one block: `.` free, a letter in use, `S` shared, `c` cached, `!` evicted in this tick."""
    if block.id in evicted:
        return "!"
    if block.state != "used":
        return "." if block.state == "free" else "c"
    return "S" if block.ref > 1 else block.owners[0][0].upper() if block.owners else "?"


def ascii_map(snapshot: Snapshot, say: str, evicted: Collection[int] = (), columns: int = 64) -> str:
    """The sentence, the pool one character per block, and one line per live request."""
    free = snapshot.num_blocks - snapshot.used - snapshot.cached
    marks = "".join(mark(b, evicted) for b in snapshot.blocks)
    lines = [
        f"Tick {snapshot.tick}. {say}",
        f"Pool: {snapshot.num_blocks} blocks of {snapshot.block_size} slots, {snapshot.used} in use, "
        f"{snapshot.cached} cached, {free} free",
        *(f"{at:>6}  {marks[at : at + columns]}" for at in range(0, len(marks), columns)),
    ]
    for r in snapshot.requests:
        if r.status != "finished":
            lines.append(f"{r.id:>6}  {r.status}, {count(r.tokens, 'token')}, {r.computed} computed, table {runs(r.table)}")
    return "\n".join(lines)


def runs(table: Sequence[int]) -> str:
    """A block table with consecutive ids joined: `13–28, 40`."""
    groups: list[list[int]] = []
    for block in table:
        if groups and block == groups[-1][-1] + 1:
            groups[-1].append(block)
        else:
            groups.append([block])
    return ", ".join(str(g[0]) if len(g) == 1 else f"{g[0]}–{g[-1]}" for g in groups) or "empty"


def html(snapshot: Snapshot, say: str, colours: Mapping[str, int], evicted: Collection[int] = (), title: str = "") -> str:
    """An `<img>` with the picture of `svg()`; its alt text is the sentence and the pool in numbers."""
    data = b64encode(svg(snapshot, say, colours, evicted, title).encode()).decode()
    alt = ascii_map(snapshot, say, evicted).split("\n")
    return (
        f'<img class="mv-snapshot" style="max-width:100%" width="{WIDTH}" alt="{escape(" ".join(alt[:2]), quote=True)}" '
        f'src="data:image/svg+xml;base64,{data}">'
    )


def svg(snapshot: Snapshot, say: str, colours: Mapping[str, int], evicted: Collection[int] = (), title: str = "") -> str:
    """The pool as a light card with a hairline: a headline, the sentence, one cell per block."""
    t = LIGHT
    lines = wrap(say, 84)
    top = 66 + 22 * len(lines)
    many = snapshot.num_blocks > 64
    pitch, height = (11.2, 11.2) if many else (56.0, 44.0)
    columns = int((WIDTH - 48) // pitch)
    rows = -(-snapshot.num_blocks // columns)
    total = top + 34 + rows * height + 16
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{total:.0f}" viewBox="0 0 {WIDTH} {total:.0f}" '
        f'font-family="{FONT}" fill="{t.ink}">',
        f'<defs><pattern id="h" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="1.4" height="4" fill="{t.line}"/></pattern></defs>',
        f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{total - 1:.0f}" rx="8" fill="{t.bg}" stroke="{t.hair}"/>',
        text(24, 40, f"Tick {snapshot.tick}", 22, weight=650),
        text(WIDTH - 24, 40, title, 12, t.ink3, anchor="end"),
        *(text(24, 66 + 22 * at, line, 15) for at, line in enumerate(lines)),
        text(24, top + 16, "Pool", 13, weight=600),
        text(62, top + 16, _numbers(snapshot), 13, t.ink3),
    ]
    for block in snapshot.blocks:
        x, y = 24 + block.id % columns * pitch, top + 32 + block.id // columns * height
        out.append((_dot if many else _cell)(block, x, y, colours, block.id in evicted))
    return "".join([*out, "</svg>"])


def text(x: float, y: float, words: str, size: float, fill: str = LIGHT.ink, *, weight: int = 400, anchor: str = "start",
         mono: bool = False) -> str:  # fmt: skip
    """One escaped line of SVG text."""
    font = f' font-family="{MONO}"' if mono else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" font-weight="{weight}" text-anchor="{anchor}" fill="{fill}"{font}>'
        f"{escape(words)}</text>"
    )


def wrap(words: str, width: int) -> list[str]:
    """Lines of at most `width` characters, broken at spaces."""
    lines = [""]
    for word in words.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def glyph(kind: str, x: float, y: float, size: float, stroke: str, width: float = 1.6) -> str:
    """A glyph centred on (x, y)."""
    at = f"translate({x - size / 2:g},{y - size / 2:g}) scale({size / 12:g})"
    return f'<g transform="{at}" fill="none" stroke="{stroke}" stroke-width="{width}" stroke-linecap="round">{GLYPHS[kind]}</g>'


def _numbers(s: Snapshot) -> str:
    free = s.num_blocks - s.used - s.cached
    return (
        f"{s.num_blocks:,} blocks of {s.block_size} slots: {s.used:,} in use, {s.cached:,} cached, {free:,} free"
    )


def _colour(block: BlockView, colours: Mapping[str, int]) -> Colour:
    neutral = Colour(LIGHT.line, LIGHT.raised, LIGHT.ink2, LIGHT.bg)
    at = colours.get(block.owners[0], -1) if block.ref == 1 and block.owners else -1
    return LIGHT.requests[at] if at >= 0 else neutral


def _cell(block: BlockView, x: float, y: float, colours: Mapping[str, int], evicted: bool) -> str:
    t, w, h = LIGHT, 50, 38
    colour = _colour(block, colours)
    used = block.state == "used"
    dash = "" if used else ' stroke-dasharray="1 3.4" stroke-linecap="round"' if block.state == "free" else ' stroke-dasharray="4 3"'
    fill, edge = (colour.tint, colour.edge) if used else (t.bg, t.line)
    out = f'<rect x="{x + 0.5:g}" y="{y + 0.5:g}" width="{w - 1}" height="{h - 1}" rx="6" fill="{fill}" stroke="{edge}"{dash}/>'
    out += text(x + 6, y + 13, str(block.id), 9.5, t.ink2, mono=True)
    if used:
        name = block.owners[0] if block.ref == 1 and block.owners else " ".join(block.owners[:2]) or f"ref {block.ref}"
        out += text(x + w - 6, y + 14, name[:7], 12, colour.edge, weight=700, anchor="end")
    elif block.state == "cached":
        out += text(x + w - 6, y + 13, "#" + (block.hash or "")[:4], 9, t.ink2, anchor="end", mono=True)
    share = block.filled / max(1, _slots(block))
    out += f'<rect x="{x + 6.5:g}" y="{y + 24.5:g}" width="{w - 13}" height="7" rx="1.5" fill="none" stroke="{t.line}" stroke-opacity=".6"/>'
    if share:
        ink = colour.fill if used else "url(#h)"
        out += f'<rect x="{x + 6.5:g}" y="{y + 24.5:g}" width="{(w - 13) * share:g}" height="7" rx="1.5" fill="{ink}" stroke="{edge}"/>'
    if evicted:
        out += f'<circle cx="{x + w - 2:g}" cy="{y + 2:g}" r="6.5" fill="{t.loss}" stroke="{t.bg}"/>'
        out += glyph("evict", x + w - 2, y + 2, 8, t.bg, 2)
    return out


def _dot(block: BlockView, x: float, y: float, colours: Mapping[str, int], evicted: bool) -> str:
    t, s = LIGHT, 9
    if evicted:
        return (
            f'<rect x="{x:g}" y="{y:g}" width="{s}" height="{s}" rx="1.5" fill="{t.loss_tint}" stroke="{t.loss}"/>'
            + glyph("evict", x + s / 2, y + s / 2, 7, t.loss, 2)
        )
    if block.state == "used":
        dot = f'<circle cx="{x + s / 2:g}" cy="{y + s / 2:g}" r="1.8" fill="{t.bg}"/>' if block.ref > 1 else ""
        fill = _colour(block, colours).fill
        return f'<rect x="{x:g}" y="{y:g}" width="{s}" height="{s}" rx="1.5" fill="{fill}"/>{dot}'
    dash = ' stroke-dasharray="1 2"' if block.state == "free" else ""
    fill = "none" if block.state == "free" else "url(#h)"
    return f'<rect x="{x + 0.5:g}" y="{y + 0.5:g}" width="{s - 1}" height="{s - 1}" rx="1.5" fill="{fill}" stroke="{t.line}"{dash}/>'

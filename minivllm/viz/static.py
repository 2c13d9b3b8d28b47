"""A picture of the pool that needs no browser: an ASCII map, and a small SVG card inside an `<img>`.

Deterministic, so notebooks can compare it; an `<img>` with a data URI is all that an untrusted notebook still shows.
"""

from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from html import escape

from minivllm.narrate import count
from minivllm.snapshot import BlockView, Snapshot
from minivllm.viz.palette import LIGHT, Colour
from minivllm.viz.svg import circle, document, glyph, rect, squares, text, wrap

WIDTH = 720
MARGIN = 24
NEUTRAL = Colour(LIGHT.line, LIGHT.raised, LIGHT.ink2, LIGHT.bg)
DOTTED, DASHED = {"stroke-dasharray": "1 3.4", "stroke-linecap": "round"}, {"stroke-dasharray": "4 3"}

MOST_WAITING = 8
"""Requests in the queue that a text names."""


def mark(block: BlockView, evicted: Collection[int] = ()) -> str:
    """One character for one block: `.` free, a letter in use, `S` shared, `c` cached, `!` evicted in this tick."""
    if block.id in evicted:
        return "!"
    if block.state != "used":
        return "." if block.state == "free" else "c"
    return "S" if block.ref > 1 else block.owners[0][0].upper() if block.owners else "?"


def ascii_map(snapshot: Snapshot, say: str, evicted: Collection[int] = (), columns: int = 64) -> str:
    """The sentence, the pool one character per block, and one line per live request."""
    marks = "".join(mark(b, evicted) for b in snapshot.blocks)
    lines = [
        f"Tick {snapshot.tick}. {say}",
        f"Pool: {numbers(snapshot)}",
        *(f"{at:>6}  {marks[at : at + columns]}" for at in range(0, len(marks), columns)),
    ]
    further = [r for r in snapshot.requests if r.status == "waiting"][MOST_WAITING:]
    for r in snapshot.requests:
        if r.status != "finished" and r not in further:
            held = f"{count(r.tokens, 'token')}, {r.computed} computed, table {runs(r.table)}"
            lines.append(f"{r.id:>6}  {r.status}, {held}")
    if further:
        lines.append(f"        and {len(further)} more wait")
    return "\n".join(lines)


def numbers(snapshot: Snapshot) -> str:
    """The pool in one line of numbers."""
    free = snapshot.num_blocks - snapshot.used - snapshot.cached
    size = f"{snapshot.num_blocks:,} blocks of {count(snapshot.block_size, 'slot')}"
    return f"{size}, {snapshot.used:,} in use, {snapshot.cached:,} cached, {free:,} free"


def runs(table: Sequence[int]) -> str:
    """A block table with consecutive ids joined: `13–28, 40`."""
    groups: list[list[int]] = []
    for block in table:
        if groups and block == groups[-1][-1] + 1:
            groups[-1].append(block)
        else:
            groups.append([block])
    return ", ".join(str(g[0]) if len(g) == 1 else f"{g[0]}–{g[-1]}" for g in groups) or "empty"


def image(drawing: str, alt: str, width: int = WIDTH) -> str:
    """A drawing as an `<img>` with a data URI."""
    data = b64encode(drawing.encode()).decode()
    return (
        f'<img class="mv-snapshot" style="max-width:100%" width="{width}" alt="{escape(alt, quote=True)}" '
        f'src="data:image/svg+xml;base64,{data}">'
    )


def pool_card(
    snapshot: Snapshot, say: str, colours: Mapping[str, int], evicted: Collection[int] = (), title: str = ""
) -> str:
    """The pool as a light card with a hairline: a headline, the sentence, one cell (above 64: one mark) per block."""
    lines = wrap(say, 84)
    top = 66 + 22 * len(lines)
    many = snapshot.num_blocks > 64
    pitch, height = (11.2, 11.2) if many else (56.0, 46.0)
    columns = int((WIDTH - 2 * MARGIN) // pitch)
    total = top + 34 + -(-snapshot.num_blocks // columns) * height + 16
    parts = [
        text(MARGIN, 40, f"Tick {snapshot.tick}", 22, weight=650),
        text(WIDTH - MARGIN, 40, title, 12, LIGHT.ink3, anchor="end"),
        *(text(MARGIN, 66 + 22 * at, line, 15) for at, line in enumerate(lines)),
        text(MARGIN, top + 16, "Pool", 13, weight=600),
        text(MARGIN + 38, top + 16, numbers(snapshot), 13, LIGHT.ink3),
    ]
    places = [
        (MARGIN + block.id % columns * pitch, top + 32 + block.id // columns * height) for block in snapshot.blocks
    ]
    if many:
        parts += _dots(snapshot.blocks, places, colours, evicted)
    else:
        for block, (x, y) in zip(snapshot.blocks, places, strict=True):
            parts.append(_cell(block, x, y, _colour(block, colours), block.id in evicted, snapshot.block_size))
    return document(WIDTH, total, parts)


def _colour(block: BlockView, colours: Mapping[str, int]) -> Colour:
    at = colours.get(block.owners[0], -1) if block.ref == 1 and block.owners else -1
    return LIGHT.requests[at] if at >= 0 else NEUTRAL


def _cell(block: BlockView, x: float, y: float, colour: Colour, evicted: bool, slots: int) -> str:
    t, w, h = LIGHT, 50, 38
    used, cached = block.state == "used", block.state == "cached"
    fill, edge = (colour.tint, colour.edge) if used else (t.bg, t.line)
    dash = {} if used else DASHED if cached else DOTTED
    out = rect(x, y, w, h, fill, edge, rx=6, **dash) + text(x + 6, y + 13, str(block.id), 9.5, t.ink2, mono=True)
    if used:
        names = [
            name if len(name) <= 4 else f"…{name[-3:]}" for name in block.owners[:2]
        ]  # beside the id there is no more room
        out += text(
            x + w - 6, y + 14, (" ".join(names) or f"ref {block.ref}")[:7], 12, colour.edge, weight=700, anchor="end"
        )
    elif cached:
        out += text(x + w - 6, y + 13, "#" + (block.hash or "")[:4], 9, t.ink2, anchor="end", mono=True)
    bar = (x + 6, y + 24, (w - 12) * block.filled / slots, 8)
    out += rect(x + 6, y + 24, w - 12, 8, "none", t.line, rx=1.5, **{"stroke-opacity": ".6"})
    if block.filled:
        out += rect(*bar, colour.fill if used else "url(#hatch)", edge, rx=1.5)
    if evicted:
        out += circle(x + w - 2, y + 2, 6.5, t.loss, t.bg) + glyph("evict", x + w - 2, y + 2, 8, t.bg, 2)
    return out


def _dots(
    blocks: Sequence[BlockView], places: list[tuple[float, float]], colours: Mapping[str, int], evicted: Collection[int]
) -> list[str]:
    """One mark per block; those that look alike are one path."""
    t, side = LIGHT, 9
    alike: dict[tuple[str, str], list[tuple[float, float]]] = {}
    marks = []
    for block, (x, y) in zip(blocks, places, strict=True):
        fill = _colour(block, colours).fill
        look = {"used": (fill, fill), "cached": ("url(#hatch)", t.line), "free": ("none", t.line)}[block.state]
        if block.id in evicted:
            look = (t.loss_tint, t.loss)
            marks.append(glyph("evict", x + side / 2, y + side / 2, 7, t.loss, 2))
        elif block.ref > 1:
            marks.append(circle(x + side / 2, y + side / 2, 1.8, t.bg))
        alike.setdefault(look, []).append((x, y))
    dashes = {"stroke-dasharray": "1 2"}
    paths = [
        squares(corners, side, fill, stroke, **(dashes if fill == "none" else {}))
        for (fill, stroke), corners in alike.items()
    ]
    return [*paths, *marks]

"""The free queue for readers without a kernel: as characters, and as a light card."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from minivllm.snapshot import Snapshot
from minivllm.viz import static
from minivllm.viz.palette import LIGHT
from minivllm.viz.remains import Remains
from minivllm.viz.svg import document, glyph, rect, text, wrap

DRAWN = 27
"""Most blocks of one row of the card."""


def as_text(snapshot: Snapshot, queue: tuple[int, ...], remains: Remains, lost: list[str], say: str) -> str:
    """The queue in characters, one row per part of the picture; long rows are cut and counted."""

    def cut(items: list[str], most: int = 24) -> str:
        return " ".join(items[:most]) + (f" and {len(items) - most:,} more" if len(items) > most else "") or "none"

    used = [f"{b.id}:{'+'.join(b.owners)}" + (f"(ref {b.ref})" if b.ref > 1 else "") for b in snapshot.blocks if b.ref]
    rows = [
        ("In use", len(used), cut(used)),
        ("Free queue, front first", len(queue), cut([f"{block}{_content(block, remains)}" for block in queue])),
        ("Hash to block", len(remains.hash), "gone in this tick: " + cut([f"#{digest[:4]}" for digest in lost])),
    ]
    lines = [say, *(f"{name} ({n:,}): {told}" for name, n, told in rows)]
    if left := remains.latest():
        kept = cut([str(block) if block is not None else "!" for block in left.blocks])
        lines.append(f"Left of {left.request}, head first: {kept}; {left.hit} of {len(left.blocks)} blocks can be hit")
    return "\n".join(lines)


class _Cell(NamedTuple):
    """One block of the card: the word in it and the one below, whose colour it has, its outline, whether it is lost."""

    word: str
    below: str
    owner: str = ""
    outline: Mapping[str, str] = MappingProxyType({})
    lost: bool = False


def as_svg(
    snapshot: Snapshot, queue: tuple[int, ...], remains: Remains, say: str, colours: Mapping[str, int], title: str
) -> str:
    """The queue as a light card: blocks in use, the queue from front to back, and what is left of one request."""
    used = [b for b in snapshot.blocks if b.ref]
    held = [
        _Cell(str(b.id), " ".join(b.owners) if b.ref <= 4 else f"ref {b.ref}", b.owners[0] if b.ref == 1 else "")
        for b in used
    ]
    line = []
    for block in queue:
        outline = static.DASHED if block in remains.hash else static.DOTTED
        line.append(_Cell(str(block), _content(block, remains)[1:].replace("=", " ") or "no hash", "", outline))
    rows = [
        ("In use", f"{len(used):,} blocks: not in the queue, so never evicted", held),
        ("Free queue", f"{len(queue):,} blocks, front first: taken from the left", line),
    ]
    if left := remains.latest():
        chain = [
            _Cell(
                str(b),
                f"{left.request}{at}",
                left.request,
                {} if b is None or at < left.hit else static.DASHED,
                b is None,
            )
            for at, b in enumerate(left.blocks)
        ]
        rows.append((f"What is left of {left.request}", f"{left.hit} of {len(chain)} blocks can be hit", chain))
    told = wrap(say, 84)
    out = [text(24, 40, f"Tick {snapshot.tick}", 22, weight=650), text(696, 40, title, 12, LIGHT.ink3, anchor="end")]
    out += [text(24, 66 + 22 * n, words, 15) for n, words in enumerate(told)]
    y = 74.0 + 22 * len(told)
    for name, note, cells in rows:
        note += f"; {len(cells) - DRAWN:,} more are not drawn" if len(cells) > DRAWN else ""
        out += [text(24, y + 14, name, 13, weight=600), text(696, y + 14, note, 12, LIGHT.ink3, anchor="end")]
        for at, cell in enumerate(cells[:DRAWN]):
            out.append(_drawn(cell, 24 + at % 9 * 75, y + 24 + at // 9 * 46, colours))
        y += 36 + 46 * -(-min(DRAWN, len(cells)) // 9)
    return document(static.WIDTH, y + 4, out)


def _drawn(cell: _Cell, x: float, y: float, colours: Mapping[str, int]) -> str:
    colour = LIGHT.requests[colours[cell.owner]] if cell.owner in colours else static.NEUTRAL
    fill, edge = (LIGHT.bg, LIGHT.line) if cell.outline else (colour.tint, colour.edge)
    below = text(x + 33, y + 31, cell.below[:11], 10, LIGHT.ink2, anchor="middle")
    if cell.lost:
        return (
            rect(x, y, 66, 38, LIGHT.loss_tint, LIGHT.loss, rx=6)
            + glyph("evict", x + 33, y + 13, 9, LIGHT.loss)
            + below
        )
    box = rect(x, y, 66, 38, fill, edge, rx=6, **cell.outline)
    return box + text(x + 33, y + 16, cell.word, 12, weight=600, anchor="middle", mono=True) + below


def _content(block: int, remains: Remains) -> str:
    """`#b89d=Z0`: the hash a block keeps, and whose content it is, as which logical block."""
    digest, home = remains.hash.get(block), remains.home.get(block)
    return "" if digest is None else f"#{digest[:4]}" + (f"={home[0]}{home[1]}" if home else "")

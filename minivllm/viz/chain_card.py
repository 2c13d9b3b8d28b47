"""Two chains of hashes for readers without a kernel: as characters, and as a light card."""

from minivllm.viz import static
from minivllm.viz.chain_rows import Pair, Row, brief
from minivllm.viz.palette import LIGHT
from minivllm.viz.svg import document, glyph, rect, text, wrap

LOSSES = ("first", "wrong")


def line(block: int, row: Row) -> str:
    """One row of the comparison in characters; `!` where it is lost."""
    a, b = (" ".join(map(brief, words)) for words in row.words)
    mark = "?" if None in row.names else "=" if row.names[0] == row.names[1] else "≠"
    names = " ".join([row.names[0] or "----", mark, row.names[1] or "----"])
    return f"{block:>4}  {names}  {'!' if row.state in LOSSES else ' '} {a if a == b else f'{a} | {b}'}".rstrip()


def card(pair: Pair, say: str) -> str:
    """The chains as a light card: words, hash, whether the hashes agree, hash, words."""
    lines = wrap(say, 84)
    top, lost, names = 84 + 22 * len(lines), LIGHT.loss_text, (296, 386)
    parts = [text(24, 40, pair.headline, 22, weight=650)]
    parts += [text(24, 66 + 22 * at, line, 15) for at, line in enumerate(lines)]
    parts += [text(276, top - 6, "A, in the cache", 12, anchor="end"), text(456, top - 6, "B, just arrived", 12)]
    for block, row in enumerate(pair.rows):
        y, loss, hit = top + 8 + block * 34, row.state in LOSSES, row.state == "hit"
        ink = LIGHT.ink if hit or loss else LIGHT.ink3
        parts.append(text(24, y + 17, str(block), 11, LIGHT.ink3))
        for side, name in enumerate(row.names):
            fill, edge = (LIGHT.loss_tint, LIGHT.loss) if loss else (LIGHT.bg, LIGHT.line)
            fill, edge = (LIGHT.requests[side].tint, LIGHT.ink2) if hit else (fill, edge)
            dash = {} if hit or loss else {"stroke-dasharray": "3 3"}
            if row.words[side]:
                parts.append(rect(names[side], y, 54, 25, fill, edge, rx=5, **dash))
                shown = name or "not full"
                parts.append(text(names[side] + 27, y + 17, shown, 12 if name else 10, lost if loss else ink,
                                  anchor="middle", mono=name is not None))  # fmt: skip
            words = " ".join(map(brief, row.words[side]))
            size = 12 if len(words) <= 40 else 9
            words = words if len(words) <= 56 else f"{words[:55]}…"
            parts.append(text((276, 456)[side], y + 17, words, size, ink, anchor=("end", "start")[side]))
        if None not in row.names:
            same = row.names[0] == row.names[1]
            sign = glyph("hit", 368, y + 12.5, 17, LIGHT.loss if loss else LIGHT.ink)
            parts.append(
                sign if same else text(368, y + 18, "≠", 16, lost if loss else ink, weight=700, anchor="middle")
            )
    return document(static.WIDTH, top + 20 + len(pair.rows) * 34, parts)

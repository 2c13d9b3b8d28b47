"""The memory strips of one tick without a browser: aligned text, and a card with one strip per layout."""

from collections.abc import Mapping

from minivllm.lab.strips import KINDS, Frame
from minivllm.viz.palette import LIGHT
from minivllm.viz.static import WIDTH
from minivllm.viz.svg import document, rect, text, wrap

MARKS = dict(zip(KINDS, "#/x_.", strict=True))
COLUMNS = 70
WORDS = "# holds K and V   / will   x never will   _ hole, too short for the next in line   . free"


def shares(frame: Frame) -> dict[str, int]:
    """Per cent of the memory by kind, adding up to 100 (largest remainder)."""
    counts = {kind: frame.slots(kind) for kind in KINDS}
    total = sum(counts.values()) or 1
    floor = {kind: 100 * slots // total for kind, slots in counts.items()}
    left = 100 - sum(floor.values()) if any(counts.values()) else 0
    for kind in sorted(KINDS, key=lambda k: -(100 * counts[k] / total - floor[k]))[:left]:
        floor[kind] += 1
    return floor


def table(now: Mapping[str, Frame], words: str, slots: int) -> str:
    """The sentence, then per layout its memory in 70 characters and its numbers."""
    lines = [words, WORDS]
    for name, frame in now.items():
        share = shares(frame)
        lines.append(f"{name:<7}{_strip(frame, slots)}")
        told = f"{len(frame.running)} running, {share['used']} % used, {share['later']} % later, {share['never']} % never, "
        told += f"{share['hole']} % holes, {share['free']} % free"
        lines.append(f"{'':<7}{told}{_refused(frame)}")
    return "\n".join(lines)


def _strip(frame: Frame, slots: int) -> str:
    """Each character stands for the kind in the middle of its stretch."""
    middles = [(at + 0.5) * slots / COLUMNS for at in range(COLUMNS)]
    return "".join(next(MARKS[p.kind] for p in frame.parts if p.start <= m < p.start + p.slots) for m in middles)


def _refused(frame: Frame) -> str:
    r = frame.refused
    return f"; {r.who} asks for {r.need}, largest hole {r.largest}, free {r.free}" if r else ""


def svg(now: Mapping[str, Frame], words: str, slots: int) -> str:
    """The card."""
    t, told = LIGHT, wrap(words, 92)
    top, left, room = 40 + 20 * len(told), 84, WIDTH - 84 - 130
    out = [text(24, 34 + 20 * n, line, 14) for n, line in enumerate(told)]
    out.append(_patterns())
    for at, (name, frame) in enumerate(now.items()):
        y = top + 56 * at
        out += [text(24, y + 19, name, 13, weight=600)]
        for part in frame.parts:
            x, w = left + part.start / slots * room, part.slots / slots * room
            fill, edge, dash = _STYLE[part.kind]
            out.append(rect(x, y, w, 28, fill, edge, **dash))
            if part.kind == "used" and part.who and w > 12:
                out.append(text(x + 5, y + 18.5, part.who, 11.5, t.bg, weight=700))
        share = shares(frame)
        out += [text(left + room + 14, y + 13, f"{len(frame.running)} running", 12, weight=600),
                text(left + room + 14, y + 28, f"{share['used']} % used", 12, t.ink2)]  # fmt: skip
        if frame.refused:
            out.append(text(left, y + 44, _refused(frame)[2:], 11.5, t.loss_text if name != "Paged" else t.ink2))
    return document(WIDTH, top + 56 * len(now) + 6, out)


_STYLE: dict[str, tuple[str, str, dict[str, str]]] = {
    "used": (LIGHT.ink2, LIGHT.ink2, {}),
    "later": ("url(#hatch)", LIGHT.ink2, {}),
    "never": ("url(#dots)", LIGHT.loss, {}),
    "hole": (LIGHT.bg, LIGHT.loss, {"stroke-dasharray": "4 3"}),
    "free": (LIGHT.bg, LIGHT.line, {"stroke-dasharray": "1 3"}),
}


def _patterns() -> str:
    return (
        '<defs><pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect width="6" height="6" fill="{LIGHT.loss_tint}"/><circle cx="1.5" cy="1.5" r="1" fill="{LIGHT.loss}"/>'
        f'<circle cx="4.5" cy="4.5" r="1" fill="{LIGHT.loss}"/></pattern></defs>'
    )

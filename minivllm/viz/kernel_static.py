"""The whole pass of an attention kernel without a browser: a table of pages, and a picture of scores and maxima."""

import math
from typing import NamedTuple

import numpy as np

from minivllm.lab.kernel_trace import Trace
from minivllm.viz.palette import LIGHT
from minivllm.viz.static import WIDTH, image
from minivllm.viz.svg import circle, document, glyph, text

LEFT, RIGHT, TOP, HEIGHT = 104, 620, 66, 110


class Page(NamedTuple):
    """One turn of the loop: which block, its scores (−inf where masked), and m, a, l afterwards."""

    block: int
    scores: list[float]
    m: float
    shrink: float
    sum: float


def rows(trace: Trace) -> list[Page]:
    """The pages of a trace, in order; empty if the kernel uses other names."""
    found: list[Page] = []
    now: dict[str, object] = {}
    for step in trace.steps:
        now |= step.made
        if step.made.keys() >= {"m"} and {"b", "s", "a", "l"} <= now.keys():
            m, shrink, total = (float(np.asarray(now[k]).reshape(-1)[0]) for k in ("m", "a", "l"))  # type: ignore[arg-type]
            found.append(Page(int(now["b"]), np.asarray(now["s"]).tolist(), m, shrink, total))  # type: ignore[call-overload]
    return found


def table(pages: list[Page], say: str) -> str:
    """The pages as aligned text."""
    lines = [say, "page  block  tokens  max m  shrink a   sum l"]
    for at, page in enumerate(pages):
        real = sum(score != -math.inf for score in page.scores)
        shrink = "–" if at == 0 else f"{page.shrink:.3f}"
        lines.append(f"{at + 1:>4}  {page.block:>5}  {real:>6}  {page.m:>5.2f}  {shrink:>8}  {page.sum:>6.2f}")
    return "\n".join(lines)


def html(pages: list[Page], say: str) -> str:
    """An `<img>` with the picture; its alt text is the table."""
    return image(svg(pages, say), "; ".join(table(pages, say).split("\n")))


def svg(pages: list[Page], say: str) -> str:
    """Scores of all tokens as lollipops, page by page, under the running maximum; below, block, shrink and sum."""
    t, total = LIGHT, TOP + HEIGHT + 92
    lanes = sum(len(page.scores) for page in pages)
    step = (RIGHT - LEFT) / max(1, lanes)
    known = [score for page in pages for score in page.scores if math.isfinite(score)]
    reach = max(1e-9, max(map(abs, known), default=1.0)) * 1.15

    def height(score: float) -> float:
        return TOP + HEIGHT / 2 - score / reach * HEIGHT / 2

    out = [
        text(24, 34, say, 15),
        f'<path d="M{LEFT} {height(0):g}H{RIGHT}" stroke="{t.hair}"/>',
        *(text(24, y, words, 12, t.ink2) for y, words in (
            (TOP + 30, "score of"), (TOP + 46, "each token"), (TOP + HEIGHT + 22, "block"), (TOP + HEIGHT + 46, "shrink a"),
            (TOP + HEIGHT + 70, "sum l"))),
    ]  # fmt: skip
    x, line = float(LEFT), ""
    for at, page in enumerate(pages):
        end = x + len(page.scores) * step
        middle, y = (x + end) / 2, TOP + HEIGHT
        if at:
            out.append(f'<path d="M{x:g} {TOP - 8}V{y + 76}" stroke="{t.hair}"/>')
        for lane, score in enumerate(page.scores):
            out.append(_lollipop(x + (lane + 0.5) * step, score, height, score == page.m))
        if math.isfinite(page.m):
            line += f"V{height(page.m):g}H{end:g}" if line else f"M{x:g} {height(page.m):g}H{end:g}"
        shrinks = at > 0 and page.shrink != 1
        out += [
            text(middle, y + 22, str(page.block), 12, t.ink2, anchor="middle", mono=True),
            text(middle, y + 46, "–" if at == 0 else f"{page.shrink:.3f}" if shrinks else "1", 12,
                 t.ink if shrinks else t.ink3, weight=700 if shrinks else 400, anchor="middle"),
            text(middle, y + 70, f"{page.sum:.2f}", 12, anchor="middle"),
        ]  # fmt: skip
        x = end
    last = pages[-1].m if pages and math.isfinite(pages[-1].m) else 0.0
    out += [f'<path d="{line}" fill="none" stroke="{t.ink}" stroke-width="2"/>' if line else "",
            text(RIGHT + 12, height(last) + 4, "running max", 12, t.ink2)]  # fmt: skip
    return document(WIDTH, total, out)


def _lollipop(x: float, score: float, height: object, top: bool) -> str:
    t = LIGHT
    if not math.isfinite(score):
        return glyph("evict", x, TOP + HEIGHT - 6, 9, t.loss)
    zero, y = height(0.0), height(score)  # type: ignore[operator]
    return f'<path d="M{x:g} {zero:g}V{y:g}" stroke="{t.line}"/>' + circle(x, y, 3.6, t.ink if top else t.bg, t.ink)

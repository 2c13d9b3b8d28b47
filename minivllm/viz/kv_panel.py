"""One run drawn as a triangle: rows are steps, columns positions; below them K and V as far as they are kept."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import accumulate

from minivllm.viz.palette import LIGHT
from minivllm.viz.svg import FONT, MONO

PITCH, ROW, LEFT, TOP = 8, 7, 34, 46
BLUE = LIGHT.requests[0]


@dataclass(frozen=True)
class Run:
    """One way to make a text. `steps[i]` = `(start, count)`: step i + 1 computes `count` positions from `start` on."""

    name: str
    steps: tuple[tuple[int, int], ...]

    def end(self, step: int) -> int:
        """Positions that exist after a step."""
        return sum(self.steps[step - 1]) if step else 0

    def again(self, step: int) -> int:
        """How many of a step's positions had been computed before."""
        start, count = self.steps[step - 1]
        return min(count, max(0, self.end(step - 1) - start))

    def so_far(self, step: int) -> int:
        """Positions computed up to and including a step."""
        return self._totals[step]

    @cached_property
    def _totals(self) -> list[int]:
        return [0, *accumulate(count for _, count in self.steps)]

    @property
    def again_in_all(self) -> int:
        """Positions that were computed more than once, each time counted."""
        return sum(self.again(step) for step in range(1, len(self.steps) + 1))

    @cached_property
    def kept(self) -> list[int]:
        """Positions whose K and V the next step finds, after each step: all of them, or none."""
        following = [*self.steps[1:], self.steps[-1]]
        return [0, *(self.end(step) if start else 0 for step, (start, _) in enumerate(following, 1))]

    def words(self, step: int) -> str:
        """One sentence on one step."""
        start, count = self.steps[step - 1]
        again = self.again(step)
        parts = [f"{count} computed"]
        if again:
            parts.append(f"{again} of them again")
        if start:
            parts.append(f"{start} read from the cache")
        return f"{self.name[0].upper()}{self.name[1:]}: {', '.join(parts)}."

    def marks(self, step: int) -> str:
        """A step as text: `=` read, `!` computed again, `#` computed for the first time."""
        start, count = self.steps[step - 1]
        again = self.again(step)
        return "=" * start + "!" * again + "#" * (count - again)


def width(run: Run) -> int:
    """Width of a panel in pixels."""
    return LEFT + PITCH * run.end(len(run.steps)) + 8


def height(run: Run) -> int:
    """Height of a panel in pixels."""
    return TOP + ROW * len(run.steps) + 44


def style() -> str:
    """Colours by the notebook's variables where there are any; inside an `<img>` there are none, and light is used."""
    t = LIGHT
    rules = {
        "text": f"font:12px {FONT};fill:var(--ink,{t.ink})",
        ".name": "font-size:13px;font-weight:600",
        ".dim": f"fill:var(--ink3,{t.ink3});font-size:11px",
        ".mono": f"font-family:{MONO}",
        ".alarm": f"fill:var(--loss-text,{t.loss_text})",
        ".paper": f"fill:var(--bg,{t.bg});opacity:.92",
        ".new": f"fill:var(--f0,{BLUE.fill})",
        ".read": f"fill:var(--t0,{BLUE.tint});stroke:var(--x0,{BLUE.edge});stroke-width:.5",
        ".again": "fill:url(#kvg-again)",
        ".hatch": f"fill:var(--loss,{t.loss})",
        ".under": f"fill:var(--loss-tint,{t.loss_tint})",
        ".grid": f"stroke:var(--bg,{t.bg});stroke-width:1",
        ".future": "opacity:.25",
        ".here": f"fill:none;stroke:var(--ink,{t.ink});stroke-width:1.5",
        ".room": f"fill:none;stroke:var(--line,{t.line});stroke-dasharray:1 3",
        ".kept": f"fill:var(--f0,{BLUE.fill})",
        ".card": f"fill:{t.bg};stroke:{t.hair}",
    }
    return (
        f"<style>{''.join(f'.kvg {name}{{{rule}}}' for name, rule in rules.items())}</style>"
        '<defs><pattern id="kvg-again" width="4" height="4" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect class="under" width="4" height="4"/>'
        '<rect class="hatch" width="1.8" height="4"/></pattern></defs>'
    )


def panel(run: Run, at: int) -> str:
    """The SVG elements of one run with step `at` as the last one that has happened."""
    steps, columns = len(run.steps), run.end(len(run.steps))
    bottom = TOP + ROW * steps
    out = [
        f'<text class="name" x="{LEFT}" y="13">{escape(run.name)}</text>',
        f'<text class="dim" x="{LEFT}" y="{TOP - 8}">position 0</text>',
        f'<text class="dim" x="{LEFT + PITCH * columns}" y="{TOP - 8}" text-anchor="end">{columns - 1}</text>',
    ]
    for step in range(1, steps + 1):
        future = " future" if step > at else ""
        out.append(f'<g class="row{future}" data-step="{step}">{"".join(_cells(run, step))}</g>')
        if step == 1 or step % 10 == 0:
            words = "step 1" if step == 1 else str(step)
            out.append(
                f'<text class="dim" x="{LEFT - 5}" y="{TOP + ROW * step - 0.5}" text-anchor="end">{words}</text>'
            )
    lines = "".join(f"M{LEFT + PITCH * c} {TOP}V{bottom}" for c in range(1, columns))
    lines += "".join(f"M{LEFT} {TOP + ROW * r}H{LEFT + PITCH * columns}" for r in range(1, steps))
    out.append(f'<path class="grid" d="{lines}"/>')
    frame = " ".join(f'{name}="{value}"' for name, value in here(run, at).items())
    out.append(f'<rect class="here" {frame}/>')
    out += _labels(run)
    for row, name in enumerate("KV"):
        y = bottom + 10 + 16 * row
        out.append(f'<text class="mono" x="{LEFT - 8}" y="{y + 10}" text-anchor="end">{name}</text>')
        out.append(f'<rect class="room" x="{LEFT}" y="{y}" width="{PITCH * columns}" height="12"/>')
        out.append(
            f'<rect class="kept" data-pitch="{PITCH}" x="{LEFT}" y="{y}" width="{PITCH * run.kept[at]}" height="12"/>'
        )
    return "".join(out)


def _cells(run: Run, step: int) -> Iterator[str]:
    start, count = run.steps[step - 1]
    again = run.again(step)
    y = TOP + ROW * (step - 1)
    for kind, first, last in (
        ("read", 0, start),
        ("again", start, start + again),
        ("new", start + again, start + count),
    ):
        if last > first:
            x, w = LEFT + PITCH * first, PITCH * (last - first)
            yield f'<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{ROW}"/>'


def here(run: Run, at: int) -> dict[str, int]:
    """The frame around step `at`, as SVG attributes; of no size before the first step."""
    row, columns = TOP + ROW * (at - 1), PITCH * run.end(at)
    size = {"width": columns + 2, "height": ROW + 2} if at else {"width": 0, "height": 0}
    return {"x": LEFT - 1, "y": row - 1, **size}


def _labels(run: Run) -> Iterator[str]:
    """Words on the two large areas; a lone row that computes everything again is named beside it."""
    steps = range(2, len(run.steps) + 1)
    lost = [step for step in steps if run.again(step)]
    read = [step for step in steps if run.steps[step - 1][0]]
    if len(lost) > 5:
        yield _word(LEFT + 22, TOP + ROW * int(len(run.steps) * 0.72), "computed again, every time", "alarm")
    elif lost:
        yield _word(
            LEFT + 22, TOP + ROW * lost[0] - 12, f"step {lost[0]}: {run.again(lost[0])} computed again", "alarm"
        )
    if len(read) > 5:
        yield _word(LEFT + 22, TOP + ROW * int(len(run.steps) * 0.55), "read from the cache", "")


def _word(x: float, y: float, words: str, kind: str) -> str:
    box = f'<rect class="paper" x="{x - 5}" y="{y - 12}" width="{6.3 * len(words) + 10:g}" height="17" rx="3"/>'
    return f'{box}<text class="{kind}" x="{x}" y="{y}">{escape(words)}</text>'

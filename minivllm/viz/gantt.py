"""Who ran in which tick: one row per request, one mark per tick. As data, as text, and as a picture without a browser.

`.` waits, `p` computes prompt tokens, `d` decodes one token, `-` runs but gets nothing in this tick, `!` is preempted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from minivllm import events as ev
from minivllm.viz.palette import LIGHT
from minivllm.viz.static import NEUTRAL, WIDTH
from minivllm.viz.svg import document, glyph, rect, text, wrap

WORDS = {".": "waits", "p": "computes prompt tokens", "d": "decodes", "-": "runs, gets nothing", "!": "preempted"}


@dataclass
class Row:
    """One request: its mark in each tick since the first one recorded, and when it got its first token and ended."""

    request: str
    marks: list[str] = field(default_factory=list)
    first: int | None = None
    done: int | None = None


@dataclass
class Chart:
    """Rows in order of arrival; `decodes` and `prompts`: tokens of each kind computed in each tick."""

    rows: dict[str, Row] = field(default_factory=dict)
    decodes: list[int] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)

    @property
    def ticks(self) -> int:
        """How many ticks it shows."""
        return len(self.decodes)


def chart(ticks: Iterable[Sequence[ev.Event]]) -> Chart:
    """The chart of recorded ticks (`Recorder.ticks`); a last, incomplete one is left out."""
    made, live = Chart(), dict[str, str]()
    for events in ticks:
        if not any(isinstance(event, ev.End) for event in events):
            continue
        marks = _follow(events, made, live)
        for name, row in made.rows.items():
            gap = "." if live.get(name) == "waiting" else "-" if live.get(name) == "running" else " "
            row.marks += [" "] * (made.ticks - 1 - len(row.marks)) + [marks.get(name, gap)]
    return made


def _follow(events: Sequence[ev.Event], made: Chart, live: dict[str, str]) -> dict[str, str]:
    marks: dict[str, str] = {}
    decodes = prompts = 0
    tick = next((event.tick for event in events if isinstance(event, ev.Start)), made.ticks + 1)
    for event in events:
        match event:
            case ev.Engine(rebuilt=True):
                live.update((name, "waiting") for name, status in live.items() if status == "running")
            case ev.Arrive(who) | ev.Fork(_, who):
                made.rows.setdefault(who, Row(who))
                live[who] = "waiting" if isinstance(event, ev.Arrive) else "running"
            case ev.Admit(who):
                live[who] = "running"
            case ev.Preempt(who):
                live[who], marks[who] = "waiting", "!"
            case ev.Run(who, _, count, decode):
                one = decode and count == 1  # a resumed request recomputes what it had written, too
                marks[who] = "d" if one else "p"
                decodes, prompts = (decodes + 1, prompts) if one else (decodes, prompts + count)
            case ev.Token(who, _, True):
                made.rows[who].first = tick
            case ev.Finish(who):
                made.rows[who].done = tick
                live.pop(who, None)
    made.decodes.append(decodes)
    made.prompts.append(prompts)
    return marks


def as_text(made: Chart, say: str = "") -> str:
    """The chart in characters, with first-token and last ticks, and the tokens of each tick below."""
    wide = max([len(name) for name in made.rows] + [4])
    lines = [say] if say else []
    ruler = "".join(str(t // 10 % 10) if t % 10 == 0 else "·" for t in range(1, made.ticks + 1))
    lines.append(f"{'tick':>{wide}}  {ruler}")
    for row in made.rows.values():
        told = f"first token {row.first}, done {row.done}" if row.done and row.first else ""
        lines.append(f"{row.request:>{wide}}  {''.join(row.marks):<{made.ticks}}  {told}".rstrip())
    used = sorted({mark for row in made.rows.values() for mark in row.marks if mark in WORDS}, key=list(WORDS).index)
    lines.append(" " * (wide + 2) + "  ".join(f"{mark} {WORDS[mark]}" for mark in used))
    return "\n".join(lines)


def as_svg(made: Chart, say: str, colours: Mapping[str, int], title: str = "", budget: int = 0) -> str:
    """The chart as a card: hatched prompt work, solid decodes, dotted waits; the tokens of each tick against the budget."""
    t = LIGHT
    told = wrap(say, 92)
    top, left, pitch = 50 + 20 * len(told), 52, min(26.0, (WIDTH - 52 - 170) / max(1, made.ticks))
    bars = top + 22 * len(made.rows) + 14
    most = max([d + p for d, p in zip(made.decodes, made.prompts, strict=True)] + [1])
    fits = most <= budget <= 4 * most  # else the bars would be too low to be read
    scale = 40 / (budget if fits else most)
    out = [text(24, 34, title, 13, weight=600), *(text(24, 56 + 20 * n, line, 14) for n, line in enumerate(told))]
    for at, row in enumerate(made.rows.values()):
        y = top + 22 * at
        colour = t.requests[colours[row.request]] if row.request in colours else NEUTRAL
        out += [rect(24, y, 19, 18, colour.fill, colour.edge, rx=4),
                text(33.5, y + 13, row.request[:2], 11, colour.on, weight=700, anchor="middle")]  # fmt: skip
        for tick, mark in enumerate(row.marks):
            x = left + tick * pitch
            if mark == ".":
                out.append(
                    f'<path d="M{x + 2:g} {y + 9.5}H{x + pitch - 2:g}" stroke="{t.line}" stroke-dasharray="1 3"/>'
                )
            elif mark == "!":
                out.append(glyph("preempt", x + pitch / 2, y + 9, min(11, pitch), t.loss, 2))
            elif mark in "pd-":
                fill = {"p": "url(#hatch)", "d": colour.fill, "-": t.bg}[mark]
                out.append(rect(x + 1, y + 1, pitch - 2, 16, fill, colour.edge, rx=2))
        if row.first and row.done:
            end = left + made.ticks * pitch + 12
            out.append(text(end, y + 13, f"first token {row.first}, done {row.done}", 11.5, t.ink2))
    for tick, (decode, prompt) in enumerate(zip(made.decodes, made.prompts, strict=True)):
        x, d, p = left + tick * pitch, decode * scale, prompt * scale
        out += [rect(x + 1, bars + 40 - d, pitch - 2, max(d, 1), t.ink2, t.ink2),
                rect(x + 1, bars + 40 - d - p, pitch - 2, max(p, 1), "url(#hatch)", t.ink2) if prompt else ""]  # fmt: skip
        if pitch >= 18:
            out.append(text(x + pitch / 2, bars + 54, str(decode + prompt), 10.5, t.ink3, anchor="middle"))
    if made.ticks:
        out.append(text(left - 4, bars + 54, "tokens", 10.5, t.ink2, anchor="end"))
    if made.ticks and fits:
        end = left + made.ticks * pitch
        out.append(f'<path d="M{left} {bars}H{end:g}" stroke="{t.ink2}" stroke-dasharray="4 3"/>')
        out.append(text(end + 12, bars + 4, f"budget {budget}", 11, t.ink2))
    return document(WIDTH, bars + 66, out)

"""K and V, step by step: which positions a step computes, which it computes again, and which it reads from the cache.

One picture serves the static snapshot and the live widget: rows are steps, columns are positions. The live one only
moves the playhead. Solid is new, hatched is computed again (a loss), outlined is read back.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import traitlets

from minivllm.viz import bundle
from minivllm.viz.kv_panel import Run, height, here, panel, style, width
from minivllm.viz.playable import Playable

GAP, MARGIN = 28, 20


class KVGrowth(Playable):
    """Runs of one text side by side. `rows[name]` is a list of `(start, count)`: each step's positions, as computed.

    `words` are the tokens of the text, `bytes_per_token` what keeping one costs. `tick` is the step shown, 0 … `edge`.
    Raises `ValueError` for runs of different lengths.
    """

    _esm = bundle.module("kv_growth")
    _css = bundle.css("base", "kv_growth")

    panels = traitlets.List().tag(sync=True)
    say = traitlets.List().tag(sync=True)
    sheet = traitlets.Unicode(style()).tag(sync=True)

    def __init__(
        self, rows: Mapping[str, Sequence[tuple[int, int]]], words: Sequence[str], bytes_per_token: int, title: str
    ) -> None:
        lengths = {name: len(steps) for name, steps in rows.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"the runs have {lengths} steps; allowed: the same number in each, at least one run")
        self.runs = [Run(name, tuple(steps)) for name, steps in rows.items()]
        self.words, self.bytes_per_token = tuple(words), bytes_per_token
        self.last = next(iter(lengths.values()))
        say = [self._say(step) for step in range(self.last + 1)]
        super().__init__(title=title, playhead=self.last, say=say, panels=[self._panel(run) for run in self.runs])

    def __repr__(self) -> str:
        return f"KVGrowth(step {self.tick} of {self.edge})"

    @property
    def edge(self) -> int:
        """The last step."""
        return self.last

    @property
    def sentence(self) -> str:
        """What the step shown does, in words: printed above the picture and read aloud."""
        return str(self.say[self.tick])

    def static(self) -> dict[str, str]:
        """The step shown as `text/plain` and as an `<img>`, for readers without a kernel."""
        return {"text/plain": self._ascii(), "text/html": self._html()}

    def _panel(self, run: Run) -> dict[str, Any]:
        return {
            "svg": panel(run, self.last), "width": width(run), "height": height(run), "label": self._label(run),
            "kept": run.kept, "notes": self._notes(run), "frames": [here(run, at) for at in range(self.last + 1)],
        }  # fmt: skip

    def _say(self, step: int) -> str:
        if step == 0:
            return f"Nothing is computed yet; the prompt has {self.runs[0].steps[0][1]} tokens."
        prompt = self.runs[0].end(1)
        word = self.words[prompt + step - 1] if prompt + step - 1 < len(self.words) else ""
        written = f"Step {step} writes “{word.strip()}”." if word.strip() else f"Step {step}."
        return " ".join([written, *(run.words(step) for run in self.runs)])

    def _notes(self, run: Run) -> list[str]:
        """For each step, what stands under the panel: positions computed so far, and what is kept."""
        kept = [
            f"{kept} kept, {kept * self.bytes_per_token / 2**10:,.0f} KiB" if kept else "nothing kept"
            for kept in run.kept
        ]
        return [f"{run.so_far(step):,} computed so far · {kept[step]}" for step in range(self.last + 1)]

    def _label(self, run: Run) -> str:
        every, again = run.so_far(self.last), run.again_in_all
        return f"{run.name}: {every:,} positions computed in {self.last} steps, {again:,} of them again"

    def _ascii(self) -> str:
        width = max(len(run.name) for run in self.runs)
        lines = [self.sentence]
        if self.tick:
            lines += [f"  {r.name:{width}}  {r.marks(self.tick)}  {self._notes(r)[self.tick]}" for r in self.runs]
        return "\n".join([*lines, "  # computed   ! computed again   = read from the cache"])

    def _html(self) -> str:
        each = width(self.runs[0])
        total, tall = 2 * MARGIN + len(self.runs) * (each + GAP) - GAP, height(self.runs[0]) + 2 * MARGIN + 18
        parts = []
        for at, run in enumerate(self.runs):
            x = MARGIN + at * (each + GAP)
            parts.append(f'<g transform="translate({x},{MARGIN})">{panel(run, self.tick)}')
            note = escape(self._notes(run)[self.tick])
            parts.append(f'<text class="note" x="34" y="{height(self.runs[0]) + 12}">{note}</text></g>')
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="kvg" width="{total}" height="{tall}" '
            f'viewBox="0 0 {total} {tall}">{style()}'
            f'<rect class="card" x=".5" y=".5" width="{total - 1}" height="{tall - 1}" rx="8"/>{"".join(parts)}</svg>'
        )
        alt = f"{self.sentence} {' '.join(self._label(run) + '.' for run in self.runs)}"
        data = b64encode(svg.encode()).decode()
        return (
            f'<img class="mv-snapshot" style="max-width:100%" width="{total}" alt="{escape(alt, quote=True)}" '
            f'src="data:image/svg+xml;base64,{data}">'
        )

"""One memory, four rules: what each keeps for whom, and the request it turns away while enough is free.

All ticks are computed when the strip is made (four simulated engines) and go to the browser once; only a changed setting
comes back to Python.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import traitlets

from minivllm.lab.strips import KINDS, LAYOUTS, SLOTS, Asked, Frame, film, made_up
from minivllm.viz import bundle, memory_static, static

RULES = {
    "Max": "{longest} slots for everyone, the longest allowed",
    "Pow2": "prompt, plus output rounded up to a power of two",
    "Oracle": "exactly what the request will use",
    "Paged": "{block_size} slots at a time, anywhere",
}
CHOICES = {"longest": (128, 192, 256), "block_size": (4, 16, 64)}


class MemoryStrip(anywidget.AnyWidget):
    """Max, Pow2, Oracle and Paged over the same requests. `show()` displays a static snapshot, then the live widget.

    `tick` is the playhead, 0 … `last`; setting it shows that tick. `said`: a student's predictions of the share in use, per
    cent by layout. `set("longest", 256)` and `set("block_size", 4)` run all four again.
    """

    _esm = bundle.module("memory_strip")
    _css = bundle.css("base", "memory_strip")

    playhead = traitlets.Int(0).tag(sync=True)
    error = traitlets.Unicode().tag(sync=True)
    story = traitlets.Dict().tag(sync=True)

    def __init__(
        self, asked: Sequence[Asked] | None = None, *, ticks: int = 40, slots: int = SLOTS, longest: int = 128,
        block_size: int = 16, said: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self.asked = made_up(longest=min(CHOICES["longest"])) if asked is None else list(asked)
        self.ticks, self.slots, self.said = ticks, slots, dict(said or {})
        self.options = {"longest": longest, "block_size": block_size}
        super().__init__(story=self._film())
        self.on_msg(lambda _widget, message, _buffers: self.handle(message))

    def __repr__(self) -> str:
        return f"MemoryStrip({self.slots} slots, {len(self.asked)} requests, tick {self.tick} of {self.last})"

    @property
    def last(self) -> int:
        """The last tick there is."""
        return len(self.frames["Max"]) - 1

    @property
    def tick(self) -> int:
        """The tick that is shown."""
        return int(self.playhead)

    @tick.setter
    def tick(self, tick: int) -> None:
        self.playhead = min(max(0, int(tick)), self.last)

    @property
    def now(self) -> dict[str, Frame]:
        """The four frames of the tick that is shown."""
        return {layout: frames[self.tick] for layout, frames in self.frames.items()}

    @property
    def sentence(self) -> str:
        """What the tick shows, in words."""
        return str(self.story["say"][self.tick])

    def step(self, n: int = 1) -> None:
        """`n` ticks forward."""
        self.tick += n

    def back(self, n: int = 1) -> None:
        """`n` ticks back."""
        self.tick -= n

    def set(self, name: str, value: int) -> None:
        """Run all four again with another `longest` or `block_size`. Raises `ValueError`, with nothing changed."""
        if name not in self.options:
            raise ValueError(f"{name!r} cannot be changed here; it can be {', '.join(self.options)}")
        before = self.options[name]
        self.options[name] = value
        try:
            self.story = self._film()
        except ValueError:
            self.options[name] = before
            raise
        self.tick = self.tick

    def handle(self, message: dict[str, Any]) -> None:
        """Carry out one message of the front end; an exception becomes `error`, and the view stays usable."""
        try:
            self.set(str(message.get("name")), int(message["value"]))
            self.error = ""
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"

    def show(self) -> None:
        """Display the static snapshot, then the live widget."""
        from IPython.display import display

        display(self.static(), raw=True)
        display(self)

    def static(self) -> dict[str, str]:
        """The tick as it is shown, as text and as a picture, for readers without a kernel."""
        plain = memory_static.table(self.now, f"Tick {self.tick}. {self.sentence}", self.slots)
        card = memory_static.svg(self.now, f"Tick {self.tick}. {self.sentence}", self.slots)
        return {"text/plain": plain, "text/html": static.image(card, plain.replace("\n", "; "))}

    def _film(self) -> dict[str, Any]:
        self.frames = {
            layout: film(layout, self.asked, self.ticks, slots=self.slots, **self.options) for layout in LAYOUTS
        }
        ticks = range(len(self.frames["Max"]))
        return {
            "slots": self.slots, "requests": len(self.asked), "options": dict(self.options), "choices": CHOICES, "said": self.said,
            "rules": {name: rule.format(**self.options) for name, rule in RULES.items()},
            "say": [say({name: frames[tick] for name, frames in self.frames.items()}, self.slots, len(self.asked)) for tick in ticks],
            "frames": {name: [_plain(frame) for frame in frames] for name, frames in self.frames.items()},
        }  # fmt: skip


def say(now: Mapping[str, Frame], slots: int, requests: int) -> str:
    """One sentence for one tick of all layouts."""
    if not any(frame.running or frame.done for frame in now.values()):
        return f"{slots} slots of memory, {requests} requests in line: press → to run one tick."
    turned = [
        f"{name} turns {f.refused.who} away with {f.refused.free} slots free"
        for name, f in now.items()
        if f.refused and name != "Paged"
    ]
    paged = now["Paged"]
    beyond = [f.refused.who for name, f in now.items() if f.refused and name != "Paged"]
    here = [who for who in dict.fromkeys(beyond) if who in paged.running]
    gone = [who for who in dict.fromkeys(beyond) if who in paged.done]
    told = [f"is running {_and(here)}"] if here else []
    told += [f"has finished {_and(gone)}"] if gone else []
    ending = f" Paged {' and '.join(told)}." if told else f" Paged runs {len(paged.running)}."
    return (f"{', '.join(turned)}." if turned else "Nobody is turned away.") + ending


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _plain(frame: Frame) -> dict[str, Any]:
    refused = frame.refused
    return {
        "parts": [[part.start, part.slots, KINDS.index(part.kind), part.who] for part in frame.parts],
        "refused": list(refused) if refused else None, "running": list(frame.running), "waiting": frame.waiting,
        "done": list(frame.done),
    }  # fmt: skip

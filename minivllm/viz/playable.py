"""A widget with ticks: a playhead over what was recorded, and a live edge where one more tick can be run.

The browser's messages are target ticks, so a slider that sends fifty of them costs at most fifty ticks. Each passes
`handle()`, which shows what failed instead of hiding it: an exception in a callback is invisible in a notebook.
"""

from operator import index
from typing import Any

import anywidget
import traitlets

from minivllm.allowed import shown

SLICE = 16
"""Ticks of a long run between two looks at the message queue: Stop takes effect within so many."""


class Playable(anywidget.AnyWidget):
    """Subclasses give `first`, `edge` and `advance()`, and may answer more messages in `dispatch()`."""

    title = traitlets.Unicode().tag(sync=True)
    error = traitlets.Unicode().tag(sync=True)
    notice = traitlets.Unicode().tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)
    playhead = traitlets.Int(0).tag(sync=True)

    first: int = 0
    """The first tick that can be shown."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.on_msg(lambda _widget, message, _buffers: self.handle(message))

    @property
    def edge(self) -> int:
        """The last tick that has run."""
        raise NotImplementedError

    def advance(self) -> bool:
        """Run one more tick; False, and nothing done, if there is nothing left to do: so it is for a finished recording."""
        return False

    @property
    def has_more(self) -> bool:
        """Whether there is anything left to run."""
        return False

    @property
    def tick(self) -> int:
        """The tick that is shown. Setting it moves the playhead, clamped to what was recorded; nothing is run.

        Raises `ValueError` for what is no whole number.
        """
        return int(self.playhead)

    @tick.setter
    def tick(self, tick: int) -> None:
        try:
            wanted = index(tick)
        except TypeError:
            raise ValueError(f"tick is {shown(tick)}; allowed: a whole number") from None
        self.playhead = min(max(self.first, wanted), self.edge)

    def step(self, n: int = 1) -> None:
        """`n` ticks forward: recorded ones first, then new ones as long as there is work."""
        self.goto(self.tick + n)

    def back(self, n: int = 1) -> None:
        """`n` ticks back, in the recording."""
        self.tick -= n

    def goto(self, tick: int) -> None:
        """Show a tick; one beyond the live edge is run first, as far as there is work."""
        while self.edge < tick and self.advance():
            pass
        self.tick = tick

    def run(self, ticks: int = SLICE) -> bool:
        """Up to `ticks` new ticks; True if there is more to do."""
        self.goto(self.edge + ticks)
        return self.has_more

    def alive(self) -> bool:
        """Whether messages are still answered."""
        return not self.disabled

    def handle(self, message: dict[str, Any]) -> None:
        """Carry out one message of the front end; an exception becomes `error`, and the view stays usable."""
        reply: dict[str, Any] = {}
        if self.alive():
            try:
                reply = self.dispatch(message)
                self.error = ""
            except Exception as error:
                self.error = f"{type(error).__name__}: {error}"
                self.recover()
        self.send({"type": "done", "of": message.get("type"), **reply})

    def dispatch(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answer a message; `ValueError` for one that nobody understands."""
        match message:
            case {"type": "goto", "tick": tick}:
                self.goto(int(tick))
                return {"idle": not self.has_more}
            case {"type": "run"}:
                return {"more": self.run()}
        raise ValueError(f"no message of type {message.get('type')!r}")

    def recover(self) -> None:
        """After a message that failed: bring the browser up to date."""

    def static(self) -> dict[str, str]:
        """The picture as it is now, for readers without a kernel: `text/plain` and `text/html`."""
        raise NotImplementedError

    def show(self) -> None:
        """Display the static snapshot, then the live widget."""
        from IPython.display import display

        display(self.static(), raw=True)
        display(self)

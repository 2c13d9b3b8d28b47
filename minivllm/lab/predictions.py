"""Predict, then run: the student commits to an answer, and the result is shown against it.

`predict` draws a small form and keeps the answer; `reveal` prints prediction, result and the miss. Without
a prediction it states the result alone, so a notebook runs to its end with nobody at the keyboard.
"""

import html
import math
import re
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from minivllm.lab import record

Answer = float | str
ONE = {
    "ticks": "tick",
    "positions": "position",
    "requests": "request",
    "bytes": "byte",
    "blocks": "block",
    "tokens": "token",
}
"""Units of which there can be a single one."""


class Prediction(widgets.VBox):
    """The form `predict` returns. `answer(value)` does from code what the button does on the screen.

    Shown without a kernel (on GitHub, or in a notebook just opened) it is the question as plain text.
    """

    def __init__(self, key: str, question: str, choices: Sequence[str], unit: str, default: Answer | None) -> None:
        self.key, self.question, self.choices, self.unit = key, question, tuple(choices), unit
        self.note = widgets.HTML()
        title = widgets.HTML(f"<b>Predict</b> · {html.escape(question)}")
        form = self._buttons() if self.choices else self._number(default)
        super().__init__([title, form, self.note])
        self.add_class("minivllm-predict")
        self._say(record.load()["predictions"].get(key))

    def answer(self, value: Answer) -> None:
        """Remember `value`: one of the choices, or a number (text such as "60 %" or "1,024" will do).

        Raises ValueError naming what was given and what is allowed.
        """
        kept = _choice(value, self.choices) if self.choices else number(value, self.unit)
        record.record("predictions", self.key, kept)
        self._say(kept)

    def _buttons(self) -> widgets.Widget:
        def choose(button: widgets.Button) -> None:
            self.answer(button.description)

        row = [widgets.Button(description=text, layout=widgets.Layout(width="auto")) for text in self.choices]
        for button in row:
            button.on_click(choose)
        return widgets.HBox(row, layout=widgets.Layout(flex_flow="row wrap"))

    def _number(self, default: Answer | None) -> widgets.Widget:
        field = widgets.Text(
            value="" if default is None else show(default), placeholder="a number", tooltip=self.question
        )
        field.continuous_update = False  # Enter, or leaving the field, is enough
        field.layout.width = "9em"
        keep = widgets.Button(description="Keep it", layout=widgets.Layout(width="auto"))

        def take(_: Any) -> None:
            if not field.value.strip():
                return
            try:
                self.answer(field.value)
            except ValueError as error:  # an exception in a callback is seen by nobody
                self.note.value = f"<span role='alert'>{html.escape(str(error))}</span>"

        field.observe(take, "value")
        keep.on_click(take)
        return widgets.HBox([field, widgets.Label(self.unit), keep])

    def _say(self, kept: Answer | None) -> None:
        words = "no prediction yet" if kept is None else f"you said {show(kept, self.unit)}"
        self.note.value = f"<span aria-live='polite'>{html.escape(words)}</span>"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        field = " / ".join(self.choices) or f"____ {self.unit}".rstrip()
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        bundle["text/plain"] = f"Predict · {self.question}  [ {field} ]"
        bundle["text/html"] = f"<b>Predict</b> · {html.escape(self.question)} <code>[ {html.escape(field)} ]</code>"
        return bundle


def predict(
    key: str,
    question: str,
    choices: Sequence[str] | None = None,
    unit: str = "",
    default: Answer | None = None,
) -> Prediction:
    """Ask for a prediction: one of `choices`, else a number in `unit` (`default` fills the field).

    `key` names it for `reveal`, chapter first: "03.use". Raises ValueError for lone or repeated choices.
    """
    if choices is not None and (len(choices) < 2 or len(set(choices)) < len(choices)):
        raise ValueError(f"choices are {list(choices)}; allowed: two or more different texts, or None for a number")
    return Prediction(key, question, choices or (), unit, default)


def reveal(key: str, value: Answer, unit: str = "") -> None:
    """Print the result beside the prediction of the same `key`, and by how much it was missed.

    A truth value is shown as "yes" or "no", so that it can meet `choices=["yes", "no"]`.
    """
    if isinstance(value, bool):
        value = "yes" if value else "no"
    value = value if isinstance(value, str) else float(value)  # also numpy's and torch's scalars
    record.record("results", key, value)
    said = record.load()["predictions"].get(key)
    print(verdict(said, value, unit))


def verdict(said: Answer | None, value: Answer, unit: str = "") -> str:
    """The sentence `reveal` prints: "you said 60 %; it is 83 %: off by 23 %"."""
    result = show(value, unit)
    if said is None:
        return f"it is {result} (no prediction was made)"
    if isinstance(said, str) or isinstance(value, str):
        return f"you said {said}: right" if str(said) == str(value) else f"you said {said}; it is {result}"
    miss = abs(value - said)
    if miss <= 0.005 * abs(value):
        return f"you said {show(said, unit)}; it is {result}: well predicted"
    ratio = max(value, said) / min(value, said) if min(value, said) > 0 else 0.0
    by = f"a factor of {show(ratio)}" if ratio >= 3 else show(miss, unit)
    return f"you said {show(said, unit)}; it is {result}: off by {by}"


def show(value: Answer, unit: str = "") -> str:
    """A value for reading: three significant digits, thousands set apart, then the unit."""
    if isinstance(value, str):
        text = value
    elif not math.isfinite(value):
        text = str(value)
    elif value == int(value) or abs(value) >= 100:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.3g}"
    if text == "1" and unit in ONE:
        unit = ONE[unit]
    return f"{text} {unit}".rstrip()


def number(value: Answer, unit: str = "") -> float:
    """The number in what somebody typed: 60, "60 %", "1,024", "1e9". Raises ValueError otherwise."""
    typed = str(value).strip()
    text = typed.removesuffix(unit).removesuffix("%").strip()
    text = re.sub(r"(?<=\d)[, _](?=\d{3}(\D|$))", "", text)  # thousands; "1,5" stays and is refused
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"{value!r} is not a number; type one such as 60, 0.5 or 1,024")
    if unit == "%" and 0 < abs(found) < 1 and isinstance(value, str) and not typed.endswith("%"):
        raise ValueError(f"{typed} could be {found:g} % or {100 * found:g} %; type it with its sign")
    if unit == "%" and not 0 <= found <= 100:
        raise ValueError(f"{typed} is no share of a whole; allowed: 0 to 100 %")
    return found


def _choice(value: Answer, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"{value!r} is not among the choices: {', '.join(choices)}")
    return str(value)

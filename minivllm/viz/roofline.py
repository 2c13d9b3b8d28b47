"""How fast a decode step could be, and how fast it is: one point under the roofline of a machine, moved by three sliders.

Everything is computed here; the browser draws it, and sends which request count, context or bandwidth is wanted.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import traitlets

from minivllm import allowed
from minivllm.narrate import count
from minivllm.viz import bundle, static
from minivllm.viz.playable import Playable
from minivllm.viz.roofline_card import card
from minivllm.viz.roofline_lanes import lanes
from minivllm.viz.roofline_model import Roof, ms
from minivllm.viz.roofline_picture import RANGES, Scene, stops_of


class Roofline(Playable):
    """One decode step of `batch` requests with `context` tokens each. `show()` displays the picture.

    `weights`: bytes every step reads; `kv`: bytes of K and V per token; `flops`: FLOP per token in the matrices, of
    which `head` are the output layer's (a prefill needs them once); `attention`: FLOP per token and token of context,
    4 x layers x heads x head_dim. `bandwidth` in bytes/s and `compute` in FLOP/s belong to the machine.
    `measured`: (batch, context, ms); `prefill`: (tokens, hit), drawn cold and with `hit` of them cached; `predicted`:
    milliseconds, set against the limit; `steps`: (GPU ms, host ms) of one step, drawn one by one and overlapped.
    Raises `ValueError` for a number that is not positive or out of range.
    """

    _esm = bundle.module("roofline")
    _css = bundle.css("base", "roofline")

    picture = traitlets.Dict().tag(sync=True)

    def __init__(
        self, weights: float, kv: float, flops: float, *, bandwidth: float, compute: float, attention: float = 0.0,
        head: float = 0.0, measured: Sequence[tuple[int, int, float]] = (), batch: int = 64, context: int = 640,
        prefill: tuple[int, int] | None = None, predicted: float | None = None,
        steps: tuple[float, float] | None = None, source: str = "", title: str = "",
    ) -> None:  # fmt: skip
        sizes = {"weights": weights, "kv": kv, "flops": flops, "bandwidth": bandwidth, "compute": compute}
        checked = {name: _positive(name, value) for name, value in sizes.items()}
        checked["attention"] = allowed.real("attention", attention, 0, allowed.FLOAT_MAX, "a number of 0 or more")
        checked["head"] = allowed.real("head", head, 0, flops, "a number from 0 to flops")
        roof = Roof(**checked)
        batch, context = _ranged("batch", batch), _ranged("context", context)
        taken = {_step(b, c): _positive("a time in measured", t) for b, c, t in measured}
        self._stops: dict[str, list[float]] = {
            "batch": stops_of("batch", [batch, *(b for b, _ in taken)]),
            "context": stops_of("context", [context, *(c for _, c in taken)]),
            "bandwidth": [roof.bandwidth * 2 ** (k / 4) for k in range(-12, 9)],
        }
        self._scene = Scene(
            roof, roof, batch, context, (batch, context), taken, None if prefill is None else _prefill(*prefill),
            None if predicted is None else _positive("predicted", predicted), self._stops, source, title or "Roofline",
        )  # fmt: skip
        self._lanes = None if steps is None else lanes(*(_positive("a time in steps", t) for t in steps))
        super().__init__(title=title or "roofline", picture=self._draw())

    def __repr__(self) -> str:
        point = f"{count(self.batch, 'request')} of {self.context:,} tokens"
        return f"Roofline({point}: {ms(self.limit_ms)} ms at least, bound by {self.bound})"

    # -- what it shows -------------------------------------------------------------------------------------------

    @property
    def roof(self) -> Roof:
        """Model and machine, with the bandwidth chosen; its methods answer for any step."""
        return self._scene.roof

    @property
    def batch(self) -> int:
        """Requests in the step."""
        return self._scene.batch

    @property
    def context(self) -> int:
        """Tokens that each of them has in the cache."""
        return self._scene.context

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.roof.bandwidth

    @property
    def limit_ms(self) -> float:
        """The least milliseconds of the step; `roof.limit_ms(batch, context)` for any other."""
        return self.roof.limit_ms(self.batch, self.context)

    @property
    def bytes_read(self) -> float:
        """Bytes of the step: the weights, and K and V of every request."""
        return self.roof.bytes_read(self.batch, self.context)

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.roof.intensity(self.batch, self.context)

    @property
    def bound(self) -> str:
        """`memory` or `compute`."""
        return self.roof.bound(self.batch, self.context)

    @property
    def measured_ms(self) -> float | None:
        """What was measured for exactly this step; None if nothing was, or if the bandwidth is not the machine's."""
        return self._scene.taken

    @property
    def sentence(self) -> str:
        """What the picture shows, in words: printed above it and read aloud."""
        return "".join(part if isinstance(part, str) else part["b"] for part in self.picture["say"])

    @property
    def edge(self) -> int:
        """There are no ticks."""
        return 0

    # -- what it does --------------------------------------------------------------------------------------------

    def set(self, name: str, value: Any) -> None:
        """Choose `batch`, `context` or `bandwidth` (bytes/s, an eighth to four times the machine's). Raises `ValueError`."""
        match name:
            case "batch":
                scene = replace(self._scene, batch=_ranged(name, value))
            case "context":
                scene = replace(self._scene, context=_ranged(name, value))
            case "bandwidth":
                low, high = self._stops[name][0], self._stops[name][-1]
                words = f"a number from {low:.4g} to {high:.4g} bytes per second"
                scene = replace(
                    self._scene, roof=self.roof._replace(bandwidth=allowed.real(name, value, low, high, words))
                )
            case _:
                raise ValueError(f"{name!r} cannot be changed here; it can be batch, context, bandwidth")
        self._scene = scene
        self.picture = self._draw()

    def dispatch(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answer a message: a slider's new place, or those of every player."""
        match message:
            case {"type": "set", "name": name, "at": at} if name in self._stops:
                self.set(name, self._stops[name][allowed.whole("at", at, 0, len(self._stops[name]) - 1)])
                return {}
        return super().dispatch(message)

    def static(self) -> dict[str, str]:
        """The picture as it is now, for readers without a kernel: `text/plain` and `text/html`."""
        words = f"{self.picture['headline']}. {self.sentence}"
        plain = [words, *(f"{name:<14} {value:>9}  {note}".rstrip() for name, value, note in self.picture["rows"])]
        plain += [self.picture["source"]] * bool(self.picture["source"])
        return {"text/plain": "\n".join(plain), "text/html": static.image(card(self.picture, self.sentence), words)}

    def _draw(self) -> dict[str, Any]:
        """All numbers and words of the picture, as plain data for the browser."""
        return {**self._scene.draw(), "lanes": self._lanes}


def _positive(name: str, value: Any) -> float:
    return allowed.real(name, value, 0, allowed.FLOAT_MAX, "a number above 0", above=True)


def _ranged(name: str, value: Any) -> int:
    return allowed.whole(name, value, *RANGES[name])


def _prefill(tokens: Any, hit: Any) -> tuple[int, int]:
    tokens = allowed.whole("prefill[0]", tokens, 1)
    return tokens, allowed.whole("prefill[1]", hit, 0, tokens - 1, ", for the last token is always computed")


def _step(batch: Any, context: Any) -> tuple[int, int]:
    return allowed.whole("a batch in measured", batch, 1), allowed.whole("a context in measured", context, 1)

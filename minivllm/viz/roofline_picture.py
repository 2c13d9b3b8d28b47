"""What the roofline widget draws, as plain data: every number and every word, so that the browser computes nothing."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log, log10
from typing import Any

from minivllm.narrate import count
from minivllm.viz.roofline_model import Roof, Work, amount, headline, ms, rate, say, short

DOTS = (1, 16, 64, 256)
RANGES = {"batch": (1, 1024), "context": (64, 131_072)}


@dataclass(frozen=True)
class Scene:
    """A decode step under a roof, and what stands beside it. `home`: the machine's own roof; `asked`: the first step."""

    roof: Roof
    home: Roof
    batch: int
    context: int
    asked: tuple[int, int]
    measured: Mapping[tuple[int, int], float]
    prefill: tuple[int, int] | None
    predicted: float | None
    stops: Mapping[str, Sequence[float]]
    source: str
    title: str

    @property
    def taken(self) -> float | None:
        """What was measured for exactly this step; None if nothing was, or if the bandwidth is not the machine's."""
        return self.measured.get((self.batch, self.context)) if self.roof == self.home else None

    @property
    def limit(self) -> float:
        """The least milliseconds of the step."""
        return self.roof.limit_ms(self.batch, self.context)

    def draw(self) -> dict[str, Any]:
        """Everything but the lanes."""
        return {
            "headline": headline(self.limit, self.taken), "say": say(self.roof, self.batch, self.context, self.taken),
            "heading": self.title, "axes": self._axes(), "roof": self._lines(), "points": self._points(),
            "here": self._here(), "prefill": self._diamonds(), "sliders": self._sliders(), "bar": self._bar(),
            "rows": self._rows(), "source": self._about(),
        }  # fmt: skip

    def _bandwidth(self, value: float) -> str:
        """Bytes per second, always in the unit of the machine's own."""
        return f"{amount(value, amount(self.home.bandwidth)[-1].strip())}B/s"

    def _axes(self) -> dict[str, Any]:
        """Ranges that hold whatever the sliders choose, so that nothing but the choice moves."""
        home, slow = self.home, self.home._replace(bandwidth=self.stops["bandwidth"][0])
        single = [home.decode(1, context) for context in RANGES["context"]]
        taken = [home.decode(b, c).flops / t * 1e3 for (b, c), t in self.measured.items()]
        prompts = [] if self.prefill is None else [home.prefill(self.prefill[0]).intensity]
        x = (0.5 * min(w.intensity for w in single), 1.5 * max(slow.ridge, *prompts, 1))
        y = (0.5 * min([*map(slow.speed, single), *taken]), 2 * home.compute)
        unit = "T" if home.compute >= 1e13 else "G"
        size = 1e12 if unit == "T" else 1e9
        return {
            "x": x, "y": y, "unit": f"{unit}FLOP/s", "xticks": [(v, f"{v:,g}") for v in _tens(*x)],
            "yticks": [(v * size, f"{v:,g}") for v in _tens(y[0] / size, y[1] / size)],
        }  # fmt: skip

    def _lines(self) -> dict[str, Any]:
        roof, never = self.roof, self.roof.never_pass(self.context)
        return {
            "bandwidth": roof.bandwidth, "compute": roof.compute, "ridge": roof.ridge,
            "slope": f"memory, {self._bandwidth(roof.bandwidth)}", "flat": f"compute, {amount(roof.compute)}FLOP/s",
            "words": f"ridge, {short(roof.ridge)}", "never": never if never < roof.ridge else None,
            "limit": ["decode can", f"never pass {short(never)}"],
        }  # fmt: skip

    def _points(self) -> list[dict[str, Any]]:
        """Limits of a few batches at this context, with what was measured for them on this machine."""
        here = {b: t for (b, c), t in self.measured.items() if c == self.context and self.roof == self.home}
        works = {b: self.roof.decode(b, self.context) for b in sorted({*DOTS, *here})}
        return [
            {
                "batch": b, "x": w.intensity, "y": self.roof.speed(w), "words": "1 request" if b == 1 else f"{b:,}",
                "measured": w.flops / here[b] * 1e3 if b in here else None,
            }
            for b, w in works.items()
        ]  # fmt: skip

    def _here(self) -> dict[str, Any]:
        work, taken = self.roof.decode(self.batch, self.context), self.taken
        below = 0.0 if taken is None else taken / self.limit
        return {
            "x": work.intensity, "y": self.roof.speed(work), "words": count(self.batch, "request"),
            "measured": work.flops / taken * 1e3 if taken else None,
            "loss": f"{below:.1f} × below the limit" if below >= 1.05 else "",
        }  # fmt: skip

    def _diamonds(self) -> dict[str, Any] | None:
        if self.prefill is None:
            return None
        tokens, hit = self.prefill
        cold, warm = self.roof.prefill(tokens), self.roof.prefill(tokens, hit)

        def place(work: Work) -> tuple[float, float]:
            return work.intensity, self.roof.speed(work)

        change = f"{ms(self.roof.ms(cold))} → {ms(self.roof.ms(warm))} ms" if hit else f"{ms(self.roof.ms(cold))} ms"
        return {
            "cold": place(cold), "warm": place(warm) if hit else None, "words": ["prefill of", count(tokens, "token")],
            "hit": f"{hit:,} of them hit:" if hit else "", "change": change,
        }  # fmt: skip

    def _sliders(self) -> list[dict[str, Any]]:
        """Where each stands among its stops, and the words for all of them; `along`: FLOP/B of every request count."""
        values = {"batch": self.batch, "context": self.context, "bandwidth": self.roof.bandwidth}
        labels = {"batch": "requests", "context": "context", "bandwidth": "bandwidth"}

        def words(name: str, value: float) -> str:
            return self._bandwidth(value) if name == "bandwidth" else f"{value:,}"

        return [
            {
                "name": name, "label": labels[name], "at": _nearest(stops, values[name]),
                "value": words(name, values[name]), "stops": [words(name, v) for v in stops],
                "along": [self.roof.intensity(int(b), self.context) for b in stops] if name == "batch" else [],
            }
            for name, stops in self.stops.items()
        ]  # fmt: skip

    def _bar(self) -> dict[str, Any]:
        whole, weights = self.roof.bytes_read(self.batch, self.context), self.roof.weights
        return {
            "share": weights / whole, "words": ["weights", f"K and V of {count(self.batch, 'request')}"],
            "short": ["weights", "K and V"], "sizes": [f"{amount(weights)}B", f"{amount(whole - weights)}B"],
        }  # fmt: skip

    def _rows(self) -> list[tuple[str, str, str]]:
        limit, said = ms(self.limit), self.predicted
        rows = [("limit", f"{limit} ms", rate(self.batch, self.limit))]
        if said is not None:
            note = "as the limit" if ms(said) == limit else f"off by {ms(abs(said - self.limit))}"
            if (self.roof, self.batch, self.context) != (self.home, *self.asked):
                note = f"for {self.asked[0]:,} of {self.asked[1]:,}"
            rows.append(("you predicted", f"{ms(said)} ms", note))
        if self.taken is not None:
            rows.append(("measured", f"{ms(self.taken)} ms", rate(self.batch, self.taken)))
        return rows

    def _about(self) -> str:
        if not self.measured or self.taken is not None:
            return self.source
        if self.roof != self.home:
            return f"What was measured belongs to {self._bandwidth(self.home.bandwidth)} and is not shown here."
        return f"Nothing was measured for this step. {self.source}".strip()


def stops_of(name: str, extra: Sequence[int]) -> list[float]:
    """Whole numbers four to the octave, with those that were asked for or measured between them."""
    low, high = RANGES[name]
    even = {max(1, 2**octave * quarter // 4) for octave in range(18) for quarter in (4, 5, 6, 7)}
    return sorted(n for n in even | {*extra} if low <= n <= high)


def _nearest(stops: Sequence[float], value: float) -> int:
    at = bisect_left(stops, value)
    near = [k for k in (at - 1, at) if 0 <= k < len(stops)]
    return min(near, key=lambda k: abs(log(stops[k] / value)))


def _tens(low: float, high: float) -> list[float]:
    return [10.0**e for e in range(ceil(log10(low)), floor(log10(high)) + 1)]

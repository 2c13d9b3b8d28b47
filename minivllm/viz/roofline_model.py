"""What a step cannot beat: it must read its bytes and multiply its numbers, and the slower of the two is the limit.

Speed over work per byte read: on the slope memory decides, under the flat roof the multipliers (Williams et al. 2009).
"""

from typing import Any, NamedTuple

from minivllm.narrate import count

_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


class Work(NamedTuple):
    """What a step has to do: `flops` FLOP, `moved` bytes."""

    flops: float
    moved: float

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.moved


class Roof(NamedTuple):
    """A model and a machine in seven numbers; what they mean stands in `Roofline`."""

    weights: float
    kv: float
    flops: float
    bandwidth: float
    compute: float
    attention: float = 0.0
    head: float = 0.0

    def decode(self, batch: int, context: int) -> Work:
        """One new token for each of `batch` requests: the weights are read once, K and V for every request."""
        return Work(batch * (self.flops + self.attention * context), self.weights + batch * context * self.kv)

    def prefill(self, tokens: int, hit: int = 0) -> Work:
        """A prompt of `tokens`, of which `hit` are cached: their K and V are read, the rest is computed and written."""
        new = tokens - hit
        flops = new * (self.flops - self.head) + self.head + self.attention * new * (hit + (new + 1) / 2)
        return Work(flops, self.weights + tokens * self.kv)

    def ms(self, work: Work) -> float:
        """The least milliseconds for this work."""
        return 1e3 * max(work.moved / self.bandwidth, work.flops / self.compute)

    def speed(self, work: Work) -> float:
        """The most FLOP per second at this work's intensity: the roof above it."""
        return min(self.compute, work.intensity * self.bandwidth)

    def limit_ms(self, batch: int, context: int) -> float:
        """The least milliseconds of one decode step."""
        return self.ms(self.decode(batch, context))

    def bytes_read(self, batch: int, context: int) -> float:
        """Bytes of one decode step."""
        return self.decode(batch, context).moved

    def intensity(self, batch: int, context: int) -> float:
        """FLOP per byte of one decode step."""
        return self.decode(batch, context).intensity

    def bound(self, batch: int, context: int) -> str:
        """Which of the two a decode step waits for: `memory` or `compute`."""
        return "memory" if self.intensity(batch, context) <= self.ridge else "compute"

    @property
    def ridge(self) -> float:
        """FLOP per byte where slope and flat roof meet."""
        return self.compute / self.bandwidth

    def never_pass(self, context: int) -> float:
        """FLOP per byte of a decode step with infinitely many requests: the weights no longer count, K and V always do."""
        return (self.flops + self.attention * context) / (context * self.kv)

    def requests_at_ridge(self, context: int) -> float | None:
        """How many requests bring a decode step to the ridge; None if no number does."""
        spare = self.flops + self.attention * context - self.ridge * context * self.kv
        return self.ridge * self.weights / spare if spare > 0 else None


# -- in words ----------------------------------------------------------------------------------------------------


def headline(limit: float, measured: float | None) -> str:
    """The share of the limit that was reached, or the limit."""
    return f"{ms(limit)} ms at least" if measured is None else f"{100 * limit / measured:.0f} % of the limit"


def say(roof: Roof, batch: int, context: int, measured: float | None) -> list[Any]:
    """What the step has to do, how long that takes at least, what more requests would change; `{"b": …}` is bold."""
    work, reads = roof.decode(batch, context), roof.bound(batch, context) == "memory"
    must = f"read {amount(work.moved)}B" if reads else f"compute {amount(work.flops)}FLOP"
    begin = f"{count(batch, 'request')} of {context:,} tokens: one step must {must}, so it cannot take less than "
    taken = "" if measured is None else f"Measured: {ms(measured)}. "
    meets = roof.requests_at_ridge(context)
    if not reads:
        tail = "The point lies under the flat roof: more bandwidth would not help, fewer FLOP would."
    elif meets is None:
        tail = "Adding requests moves the point right, but never to the ridge: each brings its own K and V to read."
    else:
        ridge = count(max(1, round(meets)), "request")
        tail = f"The ridge comes at {ridge}: from there on, computing takes longer than reading."
    return [begin, {"b": f"{ms(roof.ms(work))} ms"}, f". {taken}{tail}"]


def ms(value: float) -> str:
    """Milliseconds with the digits that matter."""
    return (
        f"{value:,.0f}"
        if value >= 1000
        else f"{value:.1f}"
        if value >= 100
        else f"{value:.2f}"
        if value >= 0.1
        else f"{value:.2g}"
    )


def amount(value: float, unit: str = "") -> str:
    """A number with its prefix, three digits: `5.89 G`; with `unit`, in that one."""
    size, prefix = next(((s, p) for s, p in _UNITS if (p == unit if unit else value >= s)), (1.0, ""))
    n = value / size
    return f"{n:,.0f} {prefix}" if n >= 100 else f"{n:.1f} {prefix}" if n >= 10 else f"{n:.2f} {prefix}"


def short(value: float) -> str:
    """A number beside a line of the chart."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def rate(tokens: float, milliseconds: float) -> str:
    """Tokens per second."""
    return f"{amount(1e3 * tokens / milliseconds).replace(' ', '')} tok/s"

"""Three steps one by one, and three with the next one in flight: what overlap hides is the time the GPU stands idle."""

from math import ceil
from typing import Any, NamedTuple

from minivllm.viz.roofline_model import ms

ROUNDING = 1e-9


class Box(NamedTuple):
    """A span of milliseconds in one of four rows: CPU and GPU one by one, then CPU and GPU with one step in flight."""

    row: int
    start: float
    end: float
    words: str = ""
    idle: bool = False


def one_by_one(gpu: float, host: float) -> list[Box]:
    """Three steps as `step()` runs them: plan, wait for the GPU, collect. Half of the host's time is taken to be planning."""
    boxes = []
    for k in range(3):
        start = k * (gpu + host) + host / 2
        boxes += [
            Box(0, start - host / 2, start, f"p{k + 1}"), Box(1, start, start + gpu, f"step {k + 1}"),
            Box(0, start + gpu, start + gpu + host / 2, f"c{k + 1}"),
        ]  # fmt: skip
        if k:
            boxes.append(Box(1, start - host, start, idle=True))
    return boxes


def one_in_flight(gpu: float, host: float) -> list[Box]:
    """Three steps as `run()` runs them: the next one is planned and launched before the last one is collected."""
    half = host / 2
    boxes, free, start = [Box(2, 0, half, "p1")], half, half
    for k in (1, 2, 3):
        end = start + gpu
        boxes.append(Box(3, start, end, f"step {k}"))
        start = free + half  # the next one is planned; the last step has none
        if k < 3:
            boxes.append(Box(2, free, start, f"p{k + 1}"))
            free = start
        collect = max(free, end)
        free = collect + half
        boxes.append(Box(2, collect, free, f"c{k}"))
        if k < 3 and start - end > ROUNDING:
            boxes.append(Box(3, end, start, idle=True))
        start = max(start, end)
    return boxes


def lanes(gpu: float, host: float) -> dict[str, Any]:
    """Both ways as plain data, with the words beside them."""
    slow, fast = gpu + host, max(gpu, host)
    boxes = [*one_by_one(gpu, host), *one_in_flight(gpu, host)]
    step = next(n for n in (m * 10.0**e for e in range(-4, 9) for m in (1, 2, 5)) if 3 * slow / n <= 6)
    return {
        "boxes": [box._asdict() for box in boxes], "gpu": f"{ms(gpu)} ms", "end": max(b.end for b in boxes),
        "done": max(b.end for b in boxes if b.row == 3), "ticks": [k * step for k in range(ceil(3 * slow / step) + 1)],
        "says": [[f"{ms(slow)} ms", "a step"], [f"{ms(fast)} ms", f"a step, {slow / fast:.2f} × faster"]],
        "note": "p plan, c collect. To scale; how the host's time divides into the two is assumed.",
    }  # fmt: skip

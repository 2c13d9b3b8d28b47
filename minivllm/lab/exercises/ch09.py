"""Chapter 09: the least time of a decode step, and which batch sizes get a graph."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

from minivllm.allowed import shown
from minivllm.lab.grading import exercise, require
from minivllm.narrate import count

WEIGHTS, KV, BANDWIDTH = 1_191_968_768, 114_688, 4.8e12  # Qwen3-0.6B in bfloat16; an H200's data sheet
Bound = Callable[[int, int, int, int, float], float]


@exercise(
    "09.decode_bound",
    hints=[
        "A step cannot end before everything it needs has been read. What does it read?",
        "All weights, once, however many requests there are. And for each request the K and V of its whole context.",
        "(weights + batch * context * kv) / bandwidth",
    ],
)
def decode_bound(student: Bound) -> str:
    """Seconds of a step: by hand on round numbers, then a real model's limits for four batches."""
    got = student(1000, 10, 2, 5, 100.0)
    require(
        not (got == 10.0 and student(100, 10, 2, 50, 100.0) == 10.0),
        "the larger of the two is not enough: weights and K and V are both read, one after the other. Add them",
    )
    require(got != 12.0, "K and V are both in the bytes per token already: do not count them twice")
    require(got != 11_000.0, "that is in milliseconds; the answer is in seconds")
    require(got != 1.0, "the weights are missing: every step reads all of them")
    require(got != 10.0, "the K and V of the requests are missing")
    require(got != 10.5, "each of the requests has a context of its own: times batch")
    require(got != 10.2, "K and V are read for every token of the context, not for one")
    require(got != 21.0, "the weights are read once for all requests: that is what a batch is good for")
    require(got != 1100.0, "those are bytes; divide them by the bandwidth")
    require(
        not any(abs(got - rate) < 1e-9 for rate in (100 / 1100, 2 * 100 / 1100)),
        "that is a rate: time is bytes over bandwidth, not the other way round",
    )
    require(got not in (110.0, 1001.0), "brackets are missing: all bytes are divided by the bandwidth")
    require(not 0 < got < 1e-3, "compute with the arguments, not with the chapter's `weights`, `kv` and `bandwidth`")
    require(
        abs(got - 11.0) < 1e-9,
        f"1000 bytes of weights, 2 requests of 5 tokens of 10 bytes, 100 bytes a second: 11 s, not {got}",
    )
    for batch in (1, 16, 64, 256):
        limit, right = (1e3 * bound(WEIGHTS, KV, batch, 640, BANDWIDTH) for bound in (student, _bound))
        require(limit > 0, f"batch {batch}: {right:.3f} ms are cut to none: divide with /, and do not round")
        require(abs(limit - right) < 0.002, f"Qwen3-0.6B at 4.8 TB/s, batch {batch}: {right:.3f} ms, yours {limit:.3f}")
    return "the limits of Qwen3-0.6B at 4.8 TB/s, at all four batch sizes"


def _bound(weights: int, kv: int, batch: int, context: int, bandwidth: float) -> float:
    return (weights + batch * context * kv) / bandwidth


@exercise(
    "09.graph_sizes",
    hints=[
        "A step takes the smallest graph that holds it. For which batch is there none?",
        "Small steps at the bottom, larger ones above. And whatever `most` is, the last size must be `most` itself.",
        "sizes = [1, 2, 4, *range(8, most, 8)], all below `most`, and then `most`.",
    ],
)
def graph_sizes(student: Callable[[int], Sequence[int]]) -> str:
    """For every limit from 1 to 512: each batch finds a graph, none is too large, little is wasted, and few are made."""
    for most in (20, *range(1, 513)):
        sizes: list[Any] = list(student(most))
        for size in sizes:
            whole = isinstance(size, Integral) and not isinstance(size, bool)
            require(whole, f"most={most}: {shown(size)} is no whole number of requests")
        largest = max(sizes, default=0)
        lost = count(largest + 1, "request")
        require(largest >= most, f"most={most}: no graph for {lost}; the largest is {largest}")
        require(sizes == sorted(set(sizes)), f"most={most}: {shown(sizes)} should ascend, each size once")
        require(sizes[0] >= 1, f"most={most}: a graph for {sizes[0]} requests")
        require(sizes[-1] == most, f"most={most}: a graph for {sizes[-1]} can never be full, and needs memory")
        for batch in range(1, most + 1):
            size = sizes[bisect_left(sizes, batch)]
            require(
                size <= 2 * batch,
                f"most={most}: {count(batch, 'request')} in a graph of {size}: mostly padding",
            )
        allowed = 8 + most // 8 + 1
        require(
            len(sizes) <= allowed,
            f"most={most}: {len(sizes)} graphs, and each is captured at the start and kept: {allowed} at most",
        )
    return "every batch has a graph for limits from 1 to 512, and the last one is always full"

"""Chapter 09: the least time of a decode step, and which batch sizes get a graph."""

from collections.abc import Callable, Sequence

from minivllm.lab.grading import exercise, require
from minivllm.narrate import count

WEIGHTS, KV, BANDWIDTH = 1_191_968_768, 114_688, 4.551e12  # Qwen3-0.6B in bfloat16; an H200's measured read rate
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
    """Seconds of a step: by hand on round numbers, then against the recorded limits of four batches."""
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
    require(not 0 < got < 0.2, "that is a rate: time is bytes over bandwidth, not the other way round")
    require(
        abs(got - 11.0) < 1e-9,
        f"1000 bytes of weights, 2 requests of 5 tokens of 10 bytes, 100 bytes a second: 11 s, not {got}",
    )
    for batch, ms in ((1, 0.278), (16, 0.520), (64, 1.294), (256, 4.391)):
        limit = 1e3 * student(WEIGHTS, KV, batch, 640, BANDWIDTH)
        require(abs(limit - ms) < 0.002, f"batch {batch}: the recorded limit is {ms} ms, yours {limit:.3f}")
    return "the limits of the recorded run, at all four batch sizes"


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
    for most in (20, 1, 2, 3, 7, 8, 9, 10, 16, 17, 31, 33, 40, 100, 256, 500, 512):
        sizes = list(student(most))
        largest = max(sizes, default=0)
        lost = count(largest + 1, "request")
        require(largest >= most, f"most={most}: no graph for {lost}; the largest is {largest}")
        require(sizes == sorted(set(sizes)), f"most={most}: {sizes} should ascend, each size once")
        require(sizes[0] >= 1, f"most={most}: a graph for {sizes[0]} requests")
        require(sizes[-1] == most, f"most={most}: a graph for {sizes[-1]} can never be full, and needs memory")
        for batch in range(1, most + 1):
            size = next(s for s in sizes if s >= batch)
            require(
                size <= max(2 * batch, batch + 16),
                f"most={most}: {batch} requests run in a graph of {size}: mostly padding",
            )
        allowed = 8 + most // 8 + 1
        require(
            len(sizes) <= allowed,
            f"most={most}: {len(sizes)} graphs, and each is captured at the start and kept: {allowed} at most",
        )
    return "every batch has a graph for limits from 1 to 512, and the last one is always full"

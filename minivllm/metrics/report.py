"""Numbers as text: the table a person prints, and the lines a Prometheus server scrapes."""

from collections.abc import Mapping, Sequence

TTFT_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0)
TPOT_BUCKETS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
"""vLLM's bucket edges, in seconds."""


def quantile(values: Sequence[float], q: float) -> float:
    """The smallest value that a share `q` of `values` does not exceed. Raises `ValueError` when there are none."""
    if not values:
        raise ValueError("a quantile needs at least one value; nothing was measured yet")
    wanted = -(-round(q * 1000) * len(values) // 1000)
    return sorted(values)[max(1, wanted) - 1]


def spread(values: Sequence[float], unit: str) -> str:
    """`p50 3, p99 12 ticks`, or `nothing yet`."""
    if not values:
        return "nothing yet"
    return f"p50 {quantile(values, 0.5):.4g}, p99 {quantile(values, 0.99):.4g} {unit}"


def scalar(name: str, kind: str, value: float) -> list[str]:
    """A gauge or a counter."""
    return [f"# TYPE minivllm:{name} {kind}", f"minivllm:{name} {round(value, 6):g}"]


def labelled(name: str, label: str, values: Mapping[str, int]) -> list[str]:
    """A counter with one line per value of `label`."""
    lines = [f'minivllm:{name}{{{label}="{key}"}} {value}' for key, value in sorted(values.items())]
    return [f"# TYPE minivllm:{name} counter", *lines]


def histogram(name: str, values: Sequence[float], buckets: Sequence[float]) -> list[str]:
    """Cumulative counts up to each bucket edge, then sum and count."""
    counts = [(f"{edge:g}", sum(value <= edge for value in values)) for edge in buckets] + [("+Inf", len(values))]
    lines = [f'minivllm:{name}_bucket{{le="{edge}"}} {number}' for edge, number in counts]
    ends = [f"minivllm:{name}_sum {sum(values):.6f}", f"minivllm:{name}_count {len(values)}"]
    return [f"# TYPE minivllm:{name} histogram", *lines, *ends]

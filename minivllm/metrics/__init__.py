"""What a server would put on its dashboard, counted from events alone: use of the pool, hits, latencies."""

from minivllm.metrics.counters import Metrics
from minivllm.metrics.pool import Use
from minivllm.metrics.report import quantile

__all__ = ["Metrics", "Use", "quantile"]

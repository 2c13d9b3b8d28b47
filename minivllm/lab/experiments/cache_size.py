"""How large must the prefix cache be? Prefixes of a conversation must outlive the time until its next turn."""

from minivllm.config import EVICTIONS, EngineConfig
from minivllm.lab.experiments.result import Cell, Chart, Result
from minivllm.lab.instruments import evicted_too_soon
from minivllm.lab.replay import serve
from minivllm.lab.workloads import make

SIZES = (128, 160, 224, 320, 448, 640, 1024)


def run(
    workload: str = "chat", blocks: tuple[int, ...] = SIZES, evictions: tuple[str, ...] = EVICTIONS, seed: int = 0
) -> Result:
    """The same traffic in pools of growing size: hit rate, evictions, and prefixes thrown away too soon."""
    rows: list[tuple[Cell, ...]] = []
    for eviction in evictions:
        for size in blocks:
            config = EngineConfig(num_blocks=size, max_num_seqs=16, eviction=eviction)
            metrics, recording = serve(config, make(workload, seed))
            soon = evicted_too_soon(recording)
            slow = sorted(seconds for _, seconds in metrics.ttft)
            rows.append(
                (eviction, size, 100 * metrics.hit_rate, metrics.evictions, len(soon), metrics.computed_tokens,
                 1000 * sum(slow) / len(slow), metrics.preemptions)
            )  # fmt: skip
    return Result(
        f"Prefix cache and pool size, workload {workload!r}, block_size 16",
        "too small a pool evicts a prefix before it is used again",
        ("eviction", "pool blocks", "hit rate %", "evictions", "evicted too soon", "tokens computed", "mean TTFT ms",
         "preemptions"),
        rows,
        [
            "Evicted too soon: blocks whose very content had to be computed again later.",
            "Times are simulated: an 8B model on one H200 (lab/device.py).",
        ],
        Chart("line", "pool blocks", ("hit rate %",), by="eviction"),
    )  # fmt: skip

"""Who goes first? Four policies, prompts mixed into decode steps or in steps of their own."""

from minivllm.config import POLICIES, EngineConfig
from minivllm.lab.device import TimeModel
from minivllm.lab.experiments.result import Cell, Chart, Result
from minivllm.lab.replay import serve
from minivllm.lab.workloads import make
from minivllm.metrics import quantile

LAPTOP_GPU = TimeModel(step=20e-3, row=50e-6, prefill=200e-6, context=0.2e-6)
"""An 8B model on a card with a tenth of an H200's speed, so that requests have to queue."""


def run(
    workloads: tuple[str, ...] = ("chat", "bursty", "batch"), seats: int = 8, blocks: int = 224, seed: int = 0
) -> Result:
    """Every policy, mixed and separate steps, on every workload, with `seats` at a time and `blocks` blocks."""
    rows: list[tuple[Cell, ...]] = []
    for workload in workloads:
        calls = make(workload, seed)
        for policy in POLICIES:
            for mixed in (True, False):
                config = EngineConfig(
                    num_blocks=blocks, max_num_seqs=seats, policy=policy, mix_prefill_decode=mixed,
                    max_num_batched_tokens=512,
                )  # fmt: skip
                metrics, _ = serve(config, calls, time=LAPTOP_GPU)
                first, later = [s for _, s in metrics.ttft], [s for _, s in metrics.tpot]
                rows.append(
                    (workload, policy, "mixed" if mixed else "separate", sum(first) / len(first), quantile(first, 0.5),
                     quantile(first, 0.99), 1000 * quantile(later, 0.5), 1000 * quantile(later, 0.99),
                     100 * metrics.hit_rate, metrics.throughput)
                )  # fmt: skip
    return Result(
        f"Scheduling policies, {seats} seats, {blocks} blocks of 16, 512 tokens per step",
        "affinity raises hits; interleaving prefill and decode trades first tokens against further ones",
        ("workload", "policy", "steps", "TTFT mean s", "TTFT p50", "TTFT p99", "TPOT p50 ms", "TPOT p99 ms",
         "hit rate %", "tokens/s"),
        rows,
        [
            "Priority has an effect only where requests carry one: the long urgent ones of `bursty`.",
            "Longest-prefix differs from fcfs only where requests queue and their prefixes do not all fit: `batch`.",
            "Simulated time: 20 ms per step + 0.2 ms per prompt token + 0.2 µs per token of context.",
        ],
        Chart("bar", "policy", ("TTFT p99",), by="workload"),
    )  # fmt: skip

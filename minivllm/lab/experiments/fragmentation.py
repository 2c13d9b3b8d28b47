"""Contiguous reservation against paging in the same memory: what is held, used and refused."""

import random
from typing import Any, NamedTuple

from minivllm.config import EngineConfig
from minivllm.engine import Engine
from minivllm.lab.device import BlankRunner
from minivllm.lab.experiments.result import Cell, Chart, Result
from minivllm.metrics import Metrics
from minivllm.request import SamplingParams

OPT_13B, LLAMA_7B = 819_200, 524_288
"""Bytes of KV per token, 16 bit."""


class Setting(NamedTuple):
    """Requests, how they are drawn (prompt, output), seats, the model's longest sequence and the pool, in tokens."""

    requests: int
    prompt: tuple[int, int]
    output: tuple[int, int]
    seats: int
    longest: int
    pool: int


SETTINGS = {
    "1: lengths 32–1024, 8 at a time": Setting(64, (16, 768), (16, 256), 8, 1024, 8 * 1024),
    "1 in half the memory": Setting(64, (16, 768), (16, 256), 8, 1024, 4 * 1024),
    "2: prompts 256–2048, 128 out": Setting(32, (256, 2048), (128, 128), 32, 2176, 20_000),
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "paged": {"kv_layout": "paged", "enable_prefix_caching": False},
    **{
        f"{reservation}, {allocator}": {"kv_layout": "contiguous", "reservation": reservation, "allocator": allocator}
        for reservation in ("max", "pow2", "oracle")
        for allocator in ("buddy", "first-fit")
    },
}


def run(block_size: int = 16, seed: int = 0) -> Result:
    """Every layout under every setting. GB are those of a 7B model without GQA (512 KiB per token)."""
    rows: list[tuple[Cell, ...]] = []
    for setting, asked in SETTINGS.items():
        rng = random.Random(seed)
        calls = [(rng.randint(*asked.prompt), rng.randint(*asked.output)) for _ in range(asked.requests)]
        for layout, options in LAYOUTS.items():
            rows.append((setting, layout, *simulate(asked, calls, block_size, options)))
    return Result(
        "KV memory held and used, contiguous and paged",
        "experiment 1: 5.6 GB contiguous, 2.1 GB paged, no refusals; experiment 2: 15 GB and 8.5 GB",
        ("experiment", "layout", "peak held GB", "peak held GB (OPT-13B)", "mean used GB", "used % of held", "batched",
         "refused: memory", "refused: hole", "steps"),
        rows,
        [
            "The 15 GB of experiment 2 cannot be KV alone: a 7B model's weights are 14 GB. Here only KV is counted.",
            "Held: K/V and what is reserved for it, with the rounding to a buddy's size. Refused: steps in which the "
            "next in line waited for memory, or for a hole although enough was free in all.",
            "In experiment 2 `max` with buddies reserves 2,176 tokens and takes 4,096.",
        ],
        Chart("bar", "layout", ("peak held GB",), by="experiment"),
    )  # fmt: skip


def simulate(asked: Setting, calls: list[tuple[int, int]], block_size: int, options: dict[str, Any]) -> list[float]:
    """One layout to the end of all requests; the numbers of its row."""
    config = EngineConfig(
        block_size=block_size,
        num_blocks=asked.pool // block_size,
        max_num_seqs=asked.seats,
        max_model_len=asked.longest,
    ).replace(**options)
    engine = Engine(config, runner=BlankRunner())
    metrics = Metrics(engine)
    for prompt, output in calls:
        engine.add([1] * prompt, SamplingParams(max_tokens=output, ignore_eos=True))
    engine.run()
    busy = [step for step in metrics.steps if step.running]
    held = max(step.held + step.rounding for step in busy)
    used = sum(step.used for step in busy) / len(busy)
    whole = sum(step.held + step.rounding for step in busy) / len(busy)
    batched = sum(step.running for step in busy) / len(busy)
    return [
        held * LLAMA_7B / 1e9, held * OPT_13B / 1e9, used * LLAMA_7B / 1e9, 100 * used / whole, batched,
        metrics.refused["memory"], metrics.refused["hole"], len(busy),
    ]  # fmt: skip

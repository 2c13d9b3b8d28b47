"""A pool that is too small: requests are admitted by their prompt, grow, and push each other out."""

from minivllm.config import EngineConfig
from minivllm.engine import Engine
from minivllm.lab.experiments.result import Chart, Result
from minivllm.metrics import Metrics
from minivllm.request import SamplingParams


def run(blocks: tuple[int, ...] = (5, 6, 8, 12, 16, 24, 30), watermark: float = 0.3) -> Result:
    """Six requests of 4 + 16 tokens (5 blocks of 4 in the end) in pools of `blocks`, with and without a watermark."""
    rows = [
        (size, share, *simulate(EngineConfig(block_size=4, num_blocks=size, watermark=share)))
        for share in dict.fromkeys((0.0, watermark))
        for size in blocks
    ]
    return Result(
        "Preemption: six requests of 4 prompt and 16 output tokens, block_size 4",
        "near a full pool throughput falls, because preempted requests compute the same tokens again",
        ("pool blocks", "watermark", "steps", "preemptions", "tokens computed", "of them again %", "tokens lost",
         "mean batch"),
        rows,
        [
            "Needed once: 6 × (4 + 16 − 1) = 114 positions. What the prefix cache still has is lost without cost.",
            "One request at a time would take 96 steps. A watermark admits later; with answers this much longer than "
            "prompts it saves little.",
        ],
        Chart("line", "pool blocks", ("steps", "preemptions"), by="watermark"),
    )  # fmt: skip


def simulate(config: EngineConfig) -> tuple[int, int, int, float, int, float]:
    """One pool to the end."""
    engine = Engine(config)
    metrics = Metrics(engine)
    for number in range(6):
        prompt = [100 * number + position for position in range(4)]
        engine.add(prompt, SamplingParams(max_tokens=16, temperature=0.0, ignore_eos=True))
    engine.run()
    steps, needed, computed = len(metrics.steps), 6 * 19, metrics.computed_tokens
    batch = sum(step.running for step in metrics.steps) / steps
    return steps, metrics.preemptions, computed, 100 * (computed - needed) / needed, metrics.lost_tokens, batch

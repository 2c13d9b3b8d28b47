"""Why is the hit rate near zero? A clock in the system prompt, and where else it could stand."""

import random

from minivllm.config import EngineConfig
from minivllm.engine import Engine
from minivllm.lab.experiments.result import Cell, Chart, Result
from minivllm.lab.instruments import explain_miss
from minivllm.lab.workloads import tokens_of
from minivllm.metrics import Metrics
from minivllm.request import SamplingParams

CLOCK = 8  # tokens of "Current time: 12:34:56."


def run(requests: int = 40, system: int = 480, question: int = 24, block_size: int = 16, seed: int = 0) -> Result:
    """`requests` questions over one system prompt of `system` tokens, the clock standing at different places in it."""
    if system < CLOCK + block_size:
        raise ValueError(f"system is {system}; allowed: {CLOCK + block_size} or more")
    text = tokens_of((("system", system),))
    places = {
        "at the very beginning": 0,
        "after 10 blocks": 10 * block_size,
        "at the end of the system prompt": system - CLOCK,
        "after the question": None,
        "no clock": None,
    }
    rows: list[tuple[Cell, ...]] = []
    for place, at in places.items():
        rng = random.Random(seed)
        prompts = []
        for _ in range(requests):
            clock = [16 + rng.randrange(1000) for _ in range(CLOCK)]
            asked = [2000 + rng.randrange(1000) for _ in range(question)]
            if at is None:
                prompts.append(text + asked + (clock if place != "no clock" else []))
            else:
                prompts.append(text[:at] + clock + text[at:] + asked)
        with Engine(EngineConfig(block_size=block_size, num_blocks=512, max_num_seqs=4)) as engine:
            metrics = Metrics(engine)
            for prompt in prompts:
                engine.add(prompt, SamplingParams(max_tokens=4, temperature=0.0))
                engine.run()
            miss = explain_miss(prompts[0], prompts[1], block_size)
        computed = metrics.prompt_tokens - metrics.hits
        rows.append((place, len(prompts[0]), 100 * metrics.hit_rate, miss.block, miss.index, computed))
    return Result(
        f"Hit rate of {requests} requests that share a system prompt of {system} tokens",
        "a timestamp in the system prompt keeps the hit rate near 0; without it, above 90 %",
        (
            "the clock stands",
            "prompt tokens",
            "hit rate %",
            "first miss: block",
            "first miss: token",
            "prompt tokens computed",
        ),
        rows,
        [
            "A hash names a block and all before it: one changed token changes its block and every later one.",
            "The first request misses everything, so even without a clock the rate stays below 100 %.",
        ],
        Chart("bar", "the clock stands", ("hit rate %",)),
    )

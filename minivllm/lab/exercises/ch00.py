"""Chapter 00: one setting changed, and the same six requests run again."""

from dataclasses import fields
from typing import Any

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.lab.grading import exercise, require

START = EngineConfig(block_size=4, num_blocks=24, max_num_batched_tokens=16, max_num_seqs=1)
"""Where the exercise begins: a small simulated engine that serves one request at a time."""
PROMPTS = (9, 6, 12, 5, 8, 10)
"""Prompt lengths of the six requests; each asks for 6 tokens."""


def six_requests(config: EngineConfig) -> Engine:
    """A simulated engine with the six requests in its queue."""
    engine = Engine(config)
    for number, length in enumerate(PROMPTS):
        first = 100 * number
        engine.add(list(range(first, first + length)), SamplingParams(temperature=0, max_tokens=6))
    return engine


def ticks_to_finish(config: EngineConfig) -> int:
    """How many ticks the six requests take with these settings."""
    engine = six_requests(config)
    engine.run()
    return engine.tick


def changes(config: EngineConfig) -> dict[str, Any]:
    """The settings that differ from START."""
    names = [f.name for f in fields(EngineConfig)]
    return {name: getattr(config, name) for name in names if getattr(config, name) != getattr(START, name)}


@exercise(
    "00.setting",
    hints=[
        "The log of tick 1 says why B does not start. What is it that every one of them waits for?",
        "“Every seat is taken”: one field of EngineConfig counts the seats, the requests that may run in one step.",
        "START.replace(max_num_seqs=…) gives a copy with more seats. There are six requests.",
    ],
)
def setting(student: Any) -> str:
    """A config that differs from START in one field and needs at most half its ticks."""
    require(isinstance(student, EngineConfig), f"give an EngineConfig, not a {type(student).__name__}")
    changed = changes(student)
    require(bool(changed), "nothing differs from START: START.replace(name=value) gives a changed copy")
    named = " and ".join(f"{name}={value!r}" for name, value in changed.items())
    require(
        len(changed) == 1,
        f"{named} are {len(changed)} changes: change one, with START.replace, or you cannot tell which of them helped",
    )
    before, after = ticks_to_finish(START), ticks_to_finish(student)
    if "max_num_seqs" in changed:
        require(
            after <= before / 2,
            f"{named} takes {after} ticks, more than half of {before}: are there seats for all six?",
        )
    require(
        after <= before / 2,
        f"{named} takes {after} ticks, START takes {before}: it is not what B waits for in tick 1",
    )
    return f"{named}: {after} ticks instead of {before}"

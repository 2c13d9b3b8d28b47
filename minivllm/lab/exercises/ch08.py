"""Chapter 08: a configuration for traffic that was not seen, and a policy that is fast and lets nobody starve."""

from statistics import mean

from minivllm import EngineConfig
from minivllm import events as ev
from minivllm.core.policy import FCFS, Policy
from minivllm.lab.device import TimeModel
from minivllm.lab.grading import NotAttempted, exercise, require
from minivllm.lab.replay import serve
from minivllm.lab.workloads import Call, make
from minivllm.narrate import count

SLOW = TimeModel(step=20e-3, row=50e-6, prefill=200e-6, context=0.2e-6)
MEMORY, ENTRIES, SECONDS, LONGEST = 4096, 300, 0.23, 2400
LEAST_SEATS, LEAST_BUDGET = 4, 256
PATIENCE = 200  # ticks


@exercise(
    "08.config",
    hints=[
        "How much pool do you get for block_size × num_blocks = 4096? And how long is the table of 2,400 tokens?",
        "The time to the first token falls with the hit rate. Large blocks cost hits, tiny ones cost table entries.",
        "EngineConfig(block_size=16, num_blocks=256) uses all the memory, with tables of 150 entries.",
    ],
)
def config(chosen: EngineConfig) -> str:
    """Within memory and table length, and quick enough on agents that come by another seed."""
    require(isinstance(chosen, EngineConfig), f"give an EngineConfig, not {type(chosen).__name__}")
    require(chosen.num_blocks is not None, "say how many blocks: num_blocks")
    tokens = chosen.num_blocks * chosen.block_size  # type: ignore[operator]
    require(
        tokens <= MEMORY,
        f"{chosen.num_blocks} blocks of {chosen.block_size} are {tokens:,} tokens; you have {MEMORY:,}",
    )
    entries = -(-LONGEST // chosen.block_size)
    require(
        entries <= ENTRIES,
        f"a request of {LONGEST:,} tokens would need a table of {entries} entries; {ENTRIES} are allowed: larger blocks",
    )
    require(
        chosen.enable_prefix_caching is not False,
        "without the prefix cache every call reads the tools again: leave it on",
    )
    try:
        metrics, _ = serve(chosen, make("agent", 3), time=SLOW)
    except ValueError as error:
        require(False, f"a request was refused: {error}")
    seconds = mean(s for _, s in metrics.ttft)
    words = f"{seconds:.3f} s to the first token, {100 * metrics.hit_rate:.0f} % hits"
    cure = "something else holds it back: begin with EngineConfig(block_size=…, num_blocks=…) alone"
    if chosen.block_size > 32:
        cure = "smaller blocks find more, and waste less at their ends"
    elif tokens + chosen.block_size <= MEMORY:
        cure = "use all the memory"
    elif chosen.max_num_seqs < LEAST_SEATS or chosen.max_num_batched_tokens < LEAST_BUDGET:
        cure = "they wait for a seat, or for their share of a step: max_num_seqs and max_num_batched_tokens are small"
    require(seconds <= SECONDS, f"{words}: too slow, {SECONDS} s are allowed; {cure}")
    return f"{words}, tables of at most {entries} entries"


@exercise(
    "08.policy",
    hints=[
        "Who of those that wait would compute the least? cache.match(request) tells how much of it is there already.",
        "max(waiting, key=lambda r: (len(cache.match(r)), -r.arrival)) is fast. Whom does it forget?",
        "Before that: oldest = min(waiting, key=lambda r: r.arrival); if tick - oldest.arrived_tick > 100: return oldest.",
    ],
)
def policy(student: type) -> str:
    """A fifth faster than first come, first served on two hidden batches, and nobody waits too long in a stream."""
    require(isinstance(student, type), f"give the class itself, not {type(student).__name__}")
    lacking = [name for name in ("pick", "victim") if not hasattr(student, name)]
    require(not lacking, f"it lacks {', '.join(lacking)}")
    if _untouched(student):
        raise NotAttempted
    theirs, mine = (mean(first_token(made(), seed) for seed in (2, 3)) for made in (FCFS, student))
    words = f"{mine:.2f} s to the first token, first come, first served {theirs:.2f} s"
    require(mine < 0.8 * theirs, f"{words}: not a fifth better. Who would compute the least?")
    ticks = longest_wait(student())
    require(
        ticks <= PATIENCE,
        f"{words}; but in a stream of many that share a prompt somebody waits for {count(ticks, 'tick')}: let them age",
    )
    return f"{words}; in a stream of many that share a prompt nobody waits for more than {count(ticks, 'tick')}"


def _untouched(student: type) -> bool:
    """Whether `pick` gives back the dots it came with."""
    try:
        return student().pick([object()], None, 0) is ...
    except Exception:  # it looks at what it is given: somebody has begun
        return False


def first_token(policy: Policy, seed: int) -> float:
    """Mean simulated seconds to the first token of a batch, in a small pool on a slow device."""
    setting = EngineConfig(num_blocks=224, max_num_seqs=8, max_num_batched_tokens=512)
    metrics, _ = serve(setting, make("batch", seed), time=SLOW, policy=policy)
    return mean(seconds for _, seconds in metrics.ttft)


def longest_wait(policy: Policy) -> int:
    """Ticks from arrival to start, the most of all, in a stream of prompts that share theirs and one that does not."""
    manual = [Call(f"m{n}", 0.05 * n, (("handbook", 400), (f"asked {n}", 20)), 12) for n in range(240)]
    calls = [*manual, Call("stranger", 0.9, (("diary", 900),), 12)]
    setting = EngineConfig(num_blocks=256, max_num_seqs=4, max_num_batched_tokens=512)
    _, recording = serve(setting, calls, time=SLOW, policy=policy)
    came: dict[str, int] = {}
    worst = 0
    for tick, events in enumerate(recording.ticks):
        for event in events:
            if isinstance(event, ev.Arrive):
                came[event.request] = tick
            elif isinstance(event, ev.Admit) and not event.resumed:
                worst = max(worst, tick - came[event.request])
    return worst

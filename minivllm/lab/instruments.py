"""What a doctor of engines looks through: each instrument finds one kind of fault, and is silent otherwise.

Those here need no torch: they read the bookkeeping, a recording, or token ids. `tensors.py` looks at numbers.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from minivllm import events as ev
from minivllm.core.audit import leaks
from minivllm.core.hashing import chain
from minivllm.engine import Engine
from minivllm.metrics import Metrics
from minivllm.recorder import Recorder


@dataclass(frozen=True)
class Miss:
    """Where two prompts part, as the prefix cache sees it. `block` and `index` are None when one begins the other."""

    block: int | None
    index: int | None
    tokens: tuple[int | None, int | None]
    hashes: tuple[tuple[str, ...], tuple[str, ...]]
    around: tuple[str, str] | None
    block_size: int

    def __str__(self) -> str:
        rows = zip(*self.hashes, strict=False)
        agreed = sum(a == b for a, b in rows)
        longest = max(map(len, self.hashes))
        lines = [f"{agreed} full blocks of {self.block_size} agree"]
        shown = [*range(min(2, agreed)), *range(max(2, agreed - 1), min(longest, agreed + 2))]
        for at, index in enumerate(shown):
            if at and index > shown[at - 1] + 1:
                lines.append("   …")
            pair = [names[index] if index < len(names) else "(not full)" for names in self.hashes]
            lines.append(f"  block {index:>3}  {pair[0]:<12} {'=' if pair[0] == pair[1] else '≠'} {pair[1]}")
        if self.index is None:
            return "\n".join([*lines, "no token differs: one prompt is the beginning of the other"])
        lines.append(f"first different token: index {self.index}, in block {self.block}: {self.tokens[0]} ≠ {self.tokens[1]}")
        if self.around:
            lines += [f"  a: {self.around[0]}", f"  b: {self.around[1]}"]
        return "\n".join(lines)


def explain_miss(a: str | Sequence[int], b: str | Sequence[int], block_size: int, tokenizer: Any = None) -> Miss:
    """Why prompt `b` does not hit what `a` left in the cache: their block hashes side by side, and the first difference.

    Prompts are token ids, or texts with a `tokenizer`, which then also shows the text around the place. Raises `ValueError`
    for a text without a tokenizer.
    """
    if block_size < 1:
        raise ValueError(f"block_size is {block_size}; allowed: 1 or more")
    if tokenizer is None and (isinstance(a, str) or isinstance(b, str)):
        raise ValueError("to compare texts give their tokenizer, or compare token ids: equal-looking texts can differ in them")
    first, second = (list(tokenizer.encode(p)) if isinstance(p, str) else [int(t) for t in p] for p in (a, b))
    hashes = tuple(tuple(h.hex()[:12] for h in chain(tokens, block_size)) for tokens in (first, second))
    index = next((i for i, (x, y) in enumerate(zip(first, second, strict=False)) if x != y), None)
    around = None
    if index is not None and tokenizer is not None:
        pieces = [[tokenizer.decode(part) for part in (t[max(0, index - 6) : index], t[index : index + 6])] for t in (first, second)]
        around = (f"{pieces[0][0]!r} → {pieces[0][1]!r}", f"{pieces[1][0]!r} → {pieces[1][1]!r}")
    return Miss(
        None if index is None else index // block_size,
        index,
        (None, None) if index is None else (first[index], second[index]),
        (hashes[0], hashes[1]),
        around,
        block_size,
    )


def leak_report(engine: Engine) -> list[str]:
    """Blocks with references that no live request explains: memory that will never come back."""
    lost = leaks(engine.scheduler.cache, engine.scheduler.requests.values())
    return [f"block {block}: {count} reference{'s' * (count > 1)} nobody owns" for block, count in sorted(lost.items())]


def table_diff(engine: Engine) -> list[str]:
    """Block tables as the device has them against those of the scheduler. Look between two ticks of `step()`."""
    device = _device_tables(engine.runner)
    wrong = []
    for request in engine.scheduler.running:
        there = device.get(request.id)
        if there is None:
            continue  # it joins with the next plan
        known = -(-request.num_scheduled // engine.config.block_size)
        for index, block in enumerate(request.table[:known]):
            found = there[index] if index < len(there) else None
            if found != block:
                wrong.append(f"{request.id}, logical block {index}: host {block}, device {found}")
    return wrong


def _device_tables(runner: Any) -> dict[str, list[int]]:
    runner = getattr(runner, "runner", runner)  # a TimedRunner's
    if hasattr(runner, "tables"):
        return dict(runner.tables)
    state = getattr(runner, "state", None)
    return {} if state is None else {name: state.tables[seat].tolist() for name, seat in state.seat.items()}


def evicted_too_soon(recording: Recorder) -> list[str]:
    """Blocks whose very content was computed again after it had been evicted: the pool is too small for the traffic."""
    gone: dict[str, int] = {}
    found: list[str] = []
    tick = 0
    for event in _all(recording):
        if isinstance(event, ev.Start):
            tick = event.tick
        elif isinstance(event, ev.Evict):
            gone[event.hash] = tick
        elif isinstance(event, ev.Publish) and event.hash in gone:
            found.append(f"tick {tick}: {event.request} computes block {event.index} again, evicted in tick {gone.pop(event.hash)}")
    return found


def whole_prompt_hits(recording: Recorder) -> list[str]:
    """Requests admitted with every token cached: none is left to compute, so there are no logits to sample from."""
    prompts: dict[str, int] = {}
    found = []
    for event in _all(recording):
        if isinstance(event, ev.Arrive):
            prompts[event.request] = event.prompt_tokens
        elif isinstance(event, ev.Admit) and not event.resumed and event.cached >= prompts[event.request]:
            found.append(f"{event.request}: {event.cached} of {prompts[event.request]} prompt tokens cached; the last must be computed")
    return found


def ping_pong(recording: Recorder, most: int = 3) -> list[str]:
    """Requests preempted more than `most` times each: they push one another out, and recompute instead of going on."""
    times = Counter(event.request for event in _all(recording) if isinstance(event, ev.Preempt))
    return [f"{name} was preempted {count} times" for name, count in times.items() if count > most]


def overtaken(recording: Recorder, most: int = 40) -> list[str]:
    """Requests that more than `most` later ones overtook while they waited: starvation."""
    order: dict[str, int] = {}
    passed: Counter[str] = Counter()
    waiting: dict[str, None] = {}
    for event in _all(recording):
        if isinstance(event, ev.Arrive):
            order[event.request] = len(order)
            waiting[event.request] = None
        elif isinstance(event, ev.Finish):
            waiting.pop(event.request, None)
        elif isinstance(event, ev.Admit) and not event.resumed:
            waiting.pop(event.request, None)
            passed.update(name for name in waiting if order[name] < order[event.request])
    return [f"{name} was overtaken by {count} requests" for name, count in passed.items() if count > most]


def broken_prefixes(prompts: Sequence[Sequence[int]], metrics: Metrics, block_size: int) -> list[str]:
    """Prompts that share most of their text and hit nothing, since an early token differs: dynamic text at the front."""
    if metrics.hit_rate > 0.05 or len(prompts) < 2:
        return []
    found = []
    for at, (a, b) in enumerate(zip(prompts, prompts[1:], strict=False)):
        shared = {tuple(a[i : i + 8]) for i in range(len(a) - 7)}
        windows = [tuple(b[i : i + 8]) for i in range(len(b) - 7)]
        alike = sum(window in shared for window in windows) / max(1, len(windows))
        index = explain_miss(a, b, block_size).index
        if alike > 0.5 and index is not None and index < 0.1 * len(b):
            found.append(f"prompts {at} and {at + 1} share {alike:.0%} of their text and part at token {index}")
    return found


def wasted_ends(metrics: Metrics, most: float = 0.4) -> list[str]:
    """Blocks so large that more than `most` of what requests hold is the empty end of a last block."""
    share = 1 - metrics.share("used", "held")
    held = any(step.held for step in metrics.steps)
    return [f"{share:.0%} of the held slots are empty: block_size is too large for these lengths"] if held and share > most else []


def long_tables(metrics: Metrics, recording: Recorder, most: int = 64) -> list[str]:
    """Tables of more than `most` blocks on average although larger blocks would waste almost nothing."""
    blocks: Counter[str] = Counter(
        event.request for event in _all(recording) if isinstance(event, ev.Take | ev.Hit)
    )
    mean = sum(blocks.values()) / len(blocks) if blocks else 0
    if mean > most and metrics.share("used", "held") > 0.98:
        return [f"a table has {mean:.0f} blocks on average: block_size is too small"]
    return []


def _all(recording: Recorder) -> Iterable[ev.Event]:
    return (event for events in recording.ticks for event in events)

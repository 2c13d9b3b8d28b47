"""What a router saw, decision by decision: each replica's pool, load and known tokens at that very moment.

Recorded ticks are walked through once, so a long run costs little; the browser only picks the moment.
"""

import re
from collections import Counter
from typing import Any

from minivllm import events as ev
from minivllm.lab.fleet import Fleet, Routed
from minivllm.narrate import count
from minivllm.recorder import Recorder, Replay
from minivllm.viz import palette

NEUTRAL = -1
"""The tone of what belongs to several conversations, or to one that has no colour."""


def conversation(call: str) -> str:
    """What the turns of a conversation have in common: `chat3.1` belongs to `chat3`."""
    parts = re.fullmatch(r"(.+)[.-][^.-]*", call)
    return parts[1] if parts else call


class Tones:
    """Up to six conversations have a colour each. Of more than six, the one whose request is being routed has the first."""

    def __init__(self, calls: list[str]) -> None:
        groups = list(dict.fromkeys(map(conversation, calls)))
        self.few: dict[str, int] | None = palette.colours(groups) if len(groups) <= palette.SIZE else None

    def of(self, users: set[str], routed: str) -> int:
        """The tone of a block that was used by these conversations, while one of them (or none of them) is routed."""
        if self.few is None:
            return 0 if routed in users else NEUTRAL
        return self.few[next(iter(users))] if len(users) == 1 else NEUTRAL


class PoolWalk:
    """The pool of one replica, led forward through its recording, and the conversations that used each block."""

    def __init__(self, recorder: Recorder) -> None:
        self._events = (event for events in recorder.ticks for event in events)
        self._next: ev.Event | None = next(self._events, None)
        self._replay = Replay()
        self._users: dict[int, set[str]] = {}

    def goto(self, tick: int) -> None:
        """Go on to the moment after `tick`; never back."""
        while self._next is not None and not (isinstance(self._next, ev.Start) and self._next.tick > tick):
            self._apply(self._next)
            self._next = next(self._events, None)

    def use(self, tones: Tones, routed: str) -> list[list[Any]]:
        """The pool as `[state, tone, blocks]`, in the order in which a strip shows them, `used` before `cached`."""
        replay, parts = self._replay, Counter[tuple[int, int]]()
        for block, ref in enumerate(replay.ref):
            if ref or block in replay.hash:
                parts[0 if ref else 1, tones.of(self._users.get(block, set()), routed)] += 1
        order = sorted(parts, key=lambda part: (part[0], part[1] % (palette.SIZE + 1)))  # neutral comes last
        return [["cached" if late else "used", tone, parts[late, tone]] for late, tone in order]

    def _apply(self, event: ev.Event) -> None:
        self._replay.apply(event)
        match event:
            case ev.Take(request=request, block=block) | ev.Copy(request=request, block=block):
                self._users[block] = {conversation(request)}
            case ev.Hit(request=request, block=block):
                self._users[block].add(conversation(request))


def frames(fleet: Fleet, tones: Tones) -> list[dict[str, Any]]:
    """What is shown after each decision, as plain data; the first entry is the moment before any."""
    n = len(fleet.replicas)
    walks = [PoolWalk(replica.recorder) for replica in fleet.replicas]
    sums = [[0, 0, 0] for _ in walks]  # requests, prompt tokens known, prompt tokens
    words = [f"{count(len(fleet.routed), 'request')} will go to {count(n, 'replica')}. Press → to route the first."]
    shown: list[dict[str, Any]] = [
        {"call": "", "group": "", "at": "", "to": None, "tokens": 0, "lost": 0, "tone": NEUTRAL, "say": words}
    ]
    shown[0] |= _sides(walks, tones, "", [0] * n, [0] * n, [0] * n, sums)
    for routed in fleet.routed:
        known, group = routed.found[routed.replica], conversation(routed.call)
        for at, more in enumerate((1, known, routed.prompt_tokens)):
            sums[routed.replica][at] += more
        shown.append({
            "call": routed.call, "group": group, "tone": tones.of({group}, group), "at": f"{routed.at:.1f} s", "to": routed.replica,
            "tokens": routed.prompt_tokens, "lost": max(routed.found) - known, "say": say(routed),
            **_sides(walks, tones, group, routed.ticks, routed.found, routed.loads, sums),
        })  # fmt: skip
    return shown


def _sides(
    walks: list[PoolWalk], tones: Tones, group: str, ticks: Any, found: Any, loads: Any, sums: Any
) -> dict[str, Any]:
    for walk, tick in zip(walks, ticks, strict=True):
        walk.goto(tick)
    pools = [walk.use(tones, group) for walk in walks]
    return {"found": list(found), "loads": list(loads), "pools": pools, "sums": [list(each) for each in sums]}


def say(routed: Routed) -> list[Any]:
    """A decision in words: who goes where, what is known there, and whether knowledge or load spoke against it.

    Text, `{"who": id}` and `{"b": bold}`.
    """
    to, found, loads = routed.replica, routed.found, routed.loads
    known, best = found[to], max(found)
    spans: list[Any] = [
        {"who": routed.call},
        f", {count(routed.prompt_tokens, 'token')}, goes to ",
        {"b": f"replica {to}"},
    ]
    if not best:
        spans.append(f". No replica knows any of it: all of it is computed.{_quieter(routed)}")
    elif known == best:
        spans.append(f", which knows {known:,} of them.{_quieter(routed)}")
    else:
        # of those that know most, the one with the fewest requests is the strongest argument
        other = min((n for n, tokens in enumerate(found) if tokens == best), key=lambda n: loads[n])
        spans += [f", which knows {f'only {known:,}' if known else 'none'} of them. Replica {other} knows {best:,}, so ",
                  {"b": f"{count(best - known, 'token')} {'is' if best - known == 1 else 'are'} computed again"}]  # fmt: skip
        busier = loads[other] > loads[to]
        spans.append(f": replica {other} has {count(loads[other], 'request')}, replica {to} has {loads[to] or 'none'}."
                     if busier else f". Replica {other} is no busier.")  # fmt: skip
    return spans


def _quieter(routed: Routed) -> str:
    """The least busy replica, if the chosen one has more requests, and what it knows."""
    to, found, loads = routed.replica, routed.found, routed.loads
    least = min(range(len(loads)), key=lambda n: (loads[n], -found[n]))
    if loads[least] == loads[to]:
        return ""
    against = f"{count(loads[least], 'request')} against {loads[to]}" if loads[least] else f"none against {loads[to]}"
    knows = "" if not max(found) else f" and knows {found[least]:,}"
    return f" Replica {least} has fewer requests, {against},{knows}".rstrip(",") + "."

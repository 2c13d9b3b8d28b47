"""The fleet view: what it shows of each decision is what the router saw, and the pools are the engines' own."""

import json
import re
from base64 import b64decode

import pytest

from minivllm import EngineConfig
from minivllm.lab.fleet import Fleet, Routed
from minivllm.lab.routers import LeastLoaded, PrefixAffinity, RandomRouter
from minivllm.lab.workloads import Call, agent, chat
from minivllm.viz import FleetView
from minivllm.viz.fleet_track import NEUTRAL, PoolWalk, Tones, conversation, say

CONFIG = EngineConfig(block_size=16, num_blocks=96, max_num_batched_tokens=512)


def served(router, calls, n=3, config=CONFIG):
    fleet = Fleet(n, config, router)
    fleet.serve(calls)
    return fleet


def words(routed):
    return "".join(part if isinstance(part, str) else next(iter(part.values())) for part in say(routed))


def decision(replica, found, loads, tokens=412):
    return Routed(1.0, "chat3.1", replica, found, loads, tokens, (0,) * len(found))


@pytest.fixture(scope="module")
def busy():
    calls = chat(3, conversations=20, rate=20)
    return {"random": served(RandomRouter(1), calls), "affinity": served(PrefixAffinity(), calls)}


@pytest.fixture
def view(busy):
    return FleetView(busy)


class Watching(LeastLoaded):
    """Notes what the pools look like whenever it is asked."""

    def __init__(self):
        self.seen = []

    def route(self, prompt, replicas):
        self.seen.append([(s.used, s.cached) for s in (replica.engine.snapshot() for replica in replicas)])
        return super().route(prompt, replicas)


@pytest.mark.parametrize("calls", [chat(3, conversations=20, rate=20), agent(1, rate=4)])
def test_the_pools_shown_are_those_that_the_router_saw(calls):
    router = Watching()
    view = FleetView(served(router, calls, config=CONFIG.replace(num_blocks=256)))
    for frame, seen in zip(view.trace["fleets"][0]["frames"][1:], router.seen, strict=True):
        for pool, (used, cached) in zip(frame["pools"], seen, strict=True):
            blocks = {state: sum(k for kind, _, k in pool if kind == state) for state in ("used", "cached")}
            assert blocks == {"used": used, "cached": cached}


def test_each_decision_shows_what_was_found_and_the_load(view):
    told = view.trace["fleets"][0]["frames"]
    assert len(told) == view.edge + 1 == len(view.fleet.routed) + 1
    for frame, routed in zip(told[1:], view.fleet.routed, strict=True):
        assert (frame["call"], frame["to"], frame["tokens"]) == (routed.call, routed.replica, routed.prompt_tokens)
        assert (tuple(frame["found"]), tuple(frame["loads"])) == (routed.found, routed.loads)
        assert frame["lost"] == max(routed.found) - routed.found[routed.replica]
    assert sum(n for n, _, _ in told[-1]["sums"]) == view.edge
    assert sum(tokens for _, _, tokens in told[-1]["sums"]) == sum(r.prompt_tokens for r in view.fleet.routed)


def test_a_pool_is_led_forward_tick_by_tick(busy):
    recorder = busy["random"].replicas[0].recorder
    walk, tones = PoolWalk(recorder), Tones([f"chat{n}.0" for n in range(20)])
    for tick in (0, 1, 7, 40, recorder.last_tick):
        walk.goto(tick)
        snapshot = recorder.at(tick)
        blocks = {
            state: sum(k for kind, _, k in walk.use(tones, "chat1") if kind == state) for state in ("used", "cached")
        }
        assert blocks == {"used": snapshot.used, "cached": snapshot.cached}


def test_the_sentence_says_who_goes_where_and_what_spoke_against_it():
    assert words(decision(2, (0, 0, 256), (0, 0, 0))) == (
        "chat3.1, 412 tokens, goes to replica 2, which knows 256 of them."
    )
    assert words(decision(2, (0, 64, 256), (3, 1, 5))).endswith(
        "knows 256 of them. Replica 1 has fewer requests, 1 request against 5, and knows 64."
    )
    assert words(decision(0, (64, 256, 0), (1, 4, 2))).endswith(
        "knows only 64 of them. Replica 1 knows 256, so 192 tokens are computed again: replica 1 has 4 requests, replica 0 has 1."
    )
    assert words(decision(0, (0, 256, 256), (1, 4, 1))).endswith(
        "knows none of them. Replica 2 knows 256, so 256 tokens are computed again. Replica 2 is no busier."
    )
    assert words(decision(1, (0, 0, 0), (1, 0, 0))).endswith("No replica knows any of it: all of it is computed.")
    assert words(decision(0, (0, 0, 0), (2, 0, 1))).endswith(
        "all of it is computed. Replica 1 has fewer requests, none against 2."
    )


def test_turns_of_a_conversation_share_a_colour_if_there_are_six_or_fewer():
    assert [conversation(call) for call in ("chat3.1", "a.b-2", "alone", ".1")] == ["chat3", "a.b", "alone", ".1"]
    few = Tones([f"chat{n}.{turn}" for turn in range(3) for n in range(6)])
    assert sorted(few.of({f"chat{n}"}, "") for n in range(6)) == list(range(6))
    assert few.of({"chat1", "chat2"}, "chat1") == NEUTRAL
    many = Tones([f"chat{n}.0" for n in range(7)])
    assert many.few is None
    assert (many.of({"chat1", "chat2"}, "chat1"), many.of({"chat2"}, "chat1")) == (0, NEUTRAL)


def test_another_router_is_shown_at_the_same_decision(view, busy):
    view.tick = 30
    assert view.decision == busy["random"].routed[29]
    assert view.sentence.startswith(f"{view.decision.call}, {view.decision.prompt_tokens:,} tokens, goes to replica")
    view.router = "affinity"
    assert (view.tick, view.fleet, view.decision) == (30, busy["affinity"], busy["affinity"].routed[29])
    view.step(1000)
    assert view.tick == view.edge
    view.back(1000)
    assert (view.tick, view.decision) == (0, None)
    assert view.sentence == f"{view.edge} requests will go to 3 replicas. Press → to route the first."
    assert repr(view) == f"FleetView(affinity, decision 0 of {view.edge})"


def test_fleets_that_cannot_be_compared_are_refused(busy, view):
    with pytest.raises(ValueError, match="fleets is empty"):
        FleetView({})
    with pytest.raises(ValueError, match="fleets is 5; give a fleet"):
        FleetView(5)
    with pytest.raises(ValueError, match="'new' has served nothing"):
        FleetView({"new": Fleet(2, CONFIG, LeastLoaded())})
    other = served(LeastLoaded(), [Call("other.0", 0.0, (("x", 20),), 4)])
    with pytest.raises(ValueError, match=r"'random' and 'other' did not serve the same calls: only one has 'chat0\.0'"):
        FleetView({"random": busy["random"], "other": other})
    with pytest.raises(ValueError, match="router is 'best'; allowed: random, affinity"):
        view.router = "best"
    assert view.router == "random"


def test_the_snapshot_is_deterministic_and_marks_the_replica_chosen(view):
    view.tick = next(k for k, r in enumerate(view.fleet.routed, 1) if max(r.found) > r.found[r.replica])
    plain, html = view.static().values()
    assert plain.startswith(f"Decision {view.tick} of {view.edge}. {view.sentence}\n")
    (marked,) = [line for line in plain.splitlines() if line.startswith("  >")]
    assert marked.split()[1] == str(view.decision.replica)
    assert plain.splitlines()[-1].startswith("whole run: ")
    svg = b64decode(re.search(r"base64,([^\"]+)", html)[1]).decode()
    lost = max(view.decision.found) - view.decision.found[view.decision.replica]
    assert f"computes {lost} again" in svg
    assert view.static() == view.static()
    view.tick = 0
    assert view.static()["text/plain"].count("nothing yet") == 3


def test_names_stay_text():
    calls = [Call("<b>x</b>.0", 0.0, (("s", 40),), 4), Call("<b>x</b>.1", 1.0, (("t", 40),), 4, "<b>x</b>.0")]
    view = FleetView({"<i>r</i>": served(LeastLoaded(), calls)}, title="<u>t</u>")
    view.tick = 2
    html = view.static()["text/html"]
    svg = b64decode(re.search(r"base64,([^\"]+)", html)[1]).decode()
    assert "<b>" not in html + svg
    assert "<u>" not in html + svg


def test_150_decisions_of_four_replicas_are_a_small_message():
    fleet = served(RandomRouter(1), chat(0, conversations=50, rate=8)[:150], 4, CONFIG.replace(num_blocks=512))
    view = FleetView(fleet)
    assert view.edge == 150
    assert len(json.dumps(view.trace)) < 100_000

"""A fleet routes each call once, at its time, by what its replicas have; and every answer is the one a lone engine gives."""

import pytest

from minivllm import EngineConfig
from minivllm.lab.device import TimeModel
from minivllm.lab.fleet import Fleet
from minivllm.lab.grading import grade
from minivllm.lab.replay import serve
from minivllm.lab.routers import LeastLoaded, PrefixAffinity, RandomRouter, RoundRobin
from minivllm.lab.workloads import Call, chat, make

CONFIG = EngineConfig(num_blocks=384, max_num_seqs=16)
SLOW = TimeModel(step=20e-3, row=50e-6, prefill=200e-6, context=0.2e-6)
SECOND_TURN = [Call("1", 0.0, (("a", 40),), 9), Call("2", 1.0, (("b", 10),), 4, after="1")]


class Scripted:
    """Sends calls where it was told to, in order."""

    def __init__(self, *choices):
        self.choices = list(choices)

    def route(self, prompt, replicas):
        return self.choices.pop(0)


def served(router, calls, n=4, config=CONFIG, time=SLOW):
    fleet = Fleet(n, config, router, time)
    fleet.serve(calls)
    return fleet


def answers(fleet):
    return {r.call: fleet.replicas[r.replica].engine.result(r.call).outputs[0].token_ids for r in fleet.routed}


def test_a_fleet_of_one_is_the_engine_alone():
    fleet = served(RoundRobin(), make("chat"), n=1)
    metrics, _ = serve(CONFIG, make("chat"), time=SLOW)
    assert fleet.hit_rate == metrics.hit_rate
    assert fleet.balance == 1.0
    assert fleet.seconds == pytest.approx(metrics.steps[-1].seconds)


def test_the_router_changes_who_answers_and_never_what():
    calls = chat(conversations=12, rate=2.0)
    expected = answers(served(RoundRobin(), calls, n=1))
    for router in (RandomRouter(1), RoundRobin(), LeastLoaded(), PrefixAffinity()):
        fleet = served(router, calls)
        assert answers(fleet) == expected
        assert len(fleet.ttft) == len(calls) == len(fleet.routed)
        assert all(replica.engine.audit() == [] for replica in fleet.replicas)


def test_a_second_turn_finds_the_first_only_where_it_was_computed():
    there, elsewhere = (served(Scripted(0, second), SECOND_TURN, n=2) for second in (0, 1))
    assert [r.found for r in there.routed] == [r.found for r in elsewhere.routed] == [(0, 0), (48, 0)]
    assert there.hit_rate > 0
    assert elsewhere.hit_rate == 0
    assert [r.prompt_tokens for r in there.routed] == [40, 59]


def test_affinity_finds_more_than_chance_and_stays_balanced():
    calls = chat(conversations=64, rate=4.0)
    by_chance, by_prefix = served(RandomRouter(), calls), served(PrefixAffinity(), calls)
    assert by_prefix.hit_rate > by_chance.hit_rate + 0.2
    assert sum(by_prefix.ttft) < sum(by_chance.ttft)
    assert by_prefix.balance < 1.6


def test_an_overloaded_replica_is_passed_over_though_it_knows_the_prompt():
    first = Call("first", 0.0, (("manual", 160),), 4)
    rest = [Call(f"q{n}", 5.0, (("manual", 160), (f"q{n}", 8)), 64) for n in range(4)]
    faithful = served(PrefixAffinity(slack=9), [first, *rest], n=2)
    even = served(PrefixAffinity(slack=0), [first, *rest], n=2)
    assert [r.replica for r in faithful.routed] == [0, 0, 0, 0, 0]
    assert [r.replica for r in even.routed] == [0, 0, 1, 0, 1]
    assert even.routed[2].loads == (1, 0)
    assert even.routed[2].found == (160, 0)


def test_the_least_loaded_gets_the_next_call():
    calls = [Call(f"c{n}", 0.0, ((f"c{n}", 8),), 4) for n in range(5)]
    assert [r.replica for r in served(LeastLoaded(), calls, n=3).routed] == [0, 1, 2, 0, 1]
    assert served(LeastLoaded(), calls, n=3).routed[3].loads == (1, 1, 1)


def test_a_call_is_routed_at_its_time_and_its_wait_counts_from_then():
    second = TimeModel(step=1.0, row=0, prefill=0, context=0)
    calls = [Call("early", 0.0, (("a", 8),), 3), Call("late", 0.5, (("b", 8),), 1), Call("idle", 9.0, (("c", 8),), 1)]
    fleet = served(Scripted(0, 0, 1), calls, n=2, time=second)
    assert [(r.at, r.ticks) for r in fleet.routed] == [(0.0, (0, 0)), (0.5, (1, 0)), (9.0, (3, 0))]
    assert fleet.ttft == [1.0, 1.0, 1.5]  # "late" waits for the end of the step that has begun
    assert fleet.seconds == 10.0


def test_decisions_are_taken_in_the_order_of_time():
    fleet = served(PrefixAffinity(), chat(conversations=24, rate=8.0))
    times = [r.at for r in fleet.routed]
    assert times == sorted(times)


@pytest.mark.parametrize("choice", [2, -1, None, 0.5])
def test_a_choice_that_is_no_replica_is_refused(choice):
    with pytest.raises(ValueError, match=r"router's choice is .* from 0 to 1"):
        served(Scripted(choice), [Call("a", 0.0, (("a", 4),), 1)], n=2)


def test_what_cannot_be_served_is_refused():
    with pytest.raises(ValueError, match="n is 0"):
        Fleet(0, CONFIG, RoundRobin())
    with pytest.raises(ValueError, match="num_blocks"):
        Fleet(2, EngineConfig(), RoundRobin())
    with pytest.raises(ValueError, match="slack is -1"):
        PrefixAffinity(-1)
    with pytest.raises(ValueError, match="follow ghost"):
        served(RoundRobin(), [Call("a", 0.0, (("a", 4),), 1, after="ghost")])
    fleet = served(RoundRobin(), SECOND_TURN)
    with pytest.raises(ValueError, match="served 2 calls already"):
        fleet.serve(SECOND_TURN)


class Meddler(Scripted):
    """Changes everything it is given."""

    def route(self, prompt, replicas):
        prompt.clear()
        assert isinstance(replicas, tuple)
        return 0


def test_a_router_cannot_change_the_request_or_the_fleet():
    calls = make("chat")[:12]
    assert served(Meddler(), calls).hit_rate == served(Scripted(*[0] * 12), calls).hit_rate > 0


def test_two_calls_of_one_name_and_a_router_that_is_none_are_refused():
    with pytest.raises(ValueError, match="calls have the same id: 1; each needs one of its own"):
        served(RoundRobin(), [SECOND_TURN[0], SECOND_TURN[0]])
    for router in (None, RoundRobin, 5):
        with pytest.raises(ValueError, match="router is"):
            Fleet(2, CONFIG, router)


def test_who_has_nothing_to_do_is_counted():
    assert served(Scripted(0, 0), SECOND_TURN).unused == 3
    assert served(Scripted(0, 2), SECOND_TURN).unused == 2


class Stumbles:
    def route(self, prompt, replicas):
        return max(range(4), key=lambda n: replicas[n].knows(prompt))


class Forgets:
    def route(self, prompt, replicas):
        replicas[0].match(prompt)


class NeedsMore:
    def __init__(self, slack):
        self.slack = slack

    def route(self, prompt, replicas):
        return self.slack


@pytest.mark.parametrize(
    ("router", "words"),
    [
        (
            Stumbles,
            "your code raised AttributeError: 'Replica' object has no attribute 'knows' (line 2 of `route`: return",
        ),
        (
            Forgets,
            "your class cannot be used (ValueError: the router's choice is None; allowed: a whole number from 0 to 3; "
            "is a `return` missing?)",
        ),
        (NeedsMore, "your class cannot be used (TypeError: NeedsMore.__init__() missing 1 required"),
    ],
)
def test_a_router_that_fails_is_told_whether_its_code_or_its_answer_is_at_fault(router, words):
    verdict = grade("11.route", router)
    assert verdict.status == "✗"
    assert verdict.words.startswith(words)

"""Who goes first, who goes out, and how long anybody can be made to wait."""

import pytest
from simulated import finish, greedy, run, simulate

from minivllm.core.kv_manager import KVManager
from minivllm.core.policy import FCFS, LongestPrefix, Policy, Priority, ShortestPrompt
from minivllm.request import Request, SamplingParams


def request(arrival: int, tokens: int = 4, priority: int = 0, tick: int = 0) -> Request:
    asker = Request(str(arrival), [arrival] * tokens, SamplingParams(), limit=99, priority=priority, arrival=arrival)
    asker.arrived_tick = tick
    return asker


CACHE = KVManager(8, 4)


def order(policy: Policy, waiting: list[Request], tick: int = 0) -> list[int]:
    """Arrival numbers in the order in which the policy would admit."""
    left, taken = list(waiting), []
    while left:
        taken.append(policy.pick(left, CACHE, tick))
        left.remove(taken[-1])
    return [asker.arrival for asker in taken]


def test_fcfs_lets_nobody_overtake() -> None:
    assert order(FCFS(), [request(n, tokens=9 - n) for n in range(5)]) == [0, 1, 2, 3, 4]


def test_priority_goes_by_number_and_then_by_arrival() -> None:
    assert order(Priority(), [request(0, priority=2), request(1, priority=1), request(2, priority=1)]) == [1, 2, 0]


def test_shortest_prompt_goes_by_length_and_then_by_arrival() -> None:
    assert order(ShortestPrompt(), [request(0, 9), request(1, 3), request(2, 3), request(3, 1)]) == [3, 1, 2, 0]


@pytest.mark.parametrize("kind", [LongestPrefix, ShortestPrompt])
def test_whoever_has_waited_long_enough_goes_first_in_order_of_arrival(kind: type) -> None:
    waiting = [request(0, 9, tick=10), request(1, 8, tick=10), request(2, 1, tick=20)]
    assert order(kind(patience=5), waiting, tick=15)[:2] == [0, 1]


def test_victims_are_the_last_admitted_or_the_least_urgent() -> None:
    running = [request(0, priority=5), request(1, priority=5), request(2, priority=0)]
    assert FCFS().victim(running).arrival == 2
    assert LongestPrefix().victim(running).arrival == 2
    assert Priority().victim(running).arrival == 1


def test_longest_prefix_puts_those_together_who_share() -> None:
    engine = simulate(bs=4, policy="longest-prefix", max_num_seqs=1)
    run(engine, range(9))
    names = [engine.add(prompt, greedy(1)) for prompt in ([99] * 9, [*range(8), 1], [88] * 9, [*range(8), 2])]
    done: list[str] = []
    while engine.has_unfinished:
        done += engine.step().finished
    assert [names.index(name) for name in done] == [1, 3, 0, 2]


@pytest.mark.parametrize("policy", [LongestPrefix(patience=8), ShortestPrompt(patience=8), FCFS()])
def test_an_endless_stream_of_favourites_cannot_starve_anybody(policy: Policy) -> None:
    engine = simulate(bs=4, policy=policy, max_num_seqs=1)
    run(engine, range(9))
    unloved = engine.add([99] * 30, greedy(1))
    waited = 0
    while engine.result(unloved).outputs[0].finish_reason is None:
        for _ in range(2):
            engine.add([*range(8), waited % 7], greedy(1))
        engine.step()
        waited += 1
        assert waited <= 8 + 3


def test_a_stream_of_more_urgent_requests_may_starve_and_the_docstring_says_so() -> None:
    engine = simulate(bs=4, policy="priority", max_num_seqs=1)
    patient = engine.add(range(5), greedy(1), priority=1)
    for _ in range(100):
        engine.add(range(5), greedy(1))
        engine.step()
    assert engine.result(patient).outputs[0].token_ids == []
    assert "starve" in (Priority.__doc__ or "")
    finish(engine)


def test_a_policy_of_ones_own_is_asked_and_its_mistakes_are_named() -> None:
    class Latest(FCFS):
        def pick(self, waiting, cache, tick):  # type: ignore[no-untyped-def]
            return waiting[-1]

    engine = simulate(policy=Latest(), max_num_seqs=1)
    first, last = (engine.add([n], greedy(1)) for n in (1, 2))
    assert engine.step().finished == (last,)
    engine.step()
    assert engine.result(first).finished

    class Stranger(FCFS):
        def pick(self, waiting, cache, tick):  # type: ignore[no-untyped-def]
            return request(0)

    engine.reconfigure(policy=Stranger())
    engine.add([1], greedy(1))
    with pytest.raises(ValueError, match=r"policy picked .* not waiting"):
        engine.step()
    engine.reconfigure(policy="fcfs")
    finish(engine)


@pytest.mark.parametrize("which", ["waiting", "running"])
def test_a_policy_that_takes_requests_out_of_the_lists_is_refused_and_loses_nothing(which: str) -> None:
    """A request that is in no list would be waited for without end."""

    class Grabbing(FCFS):
        def pick(self, waiting, cache, tick):  # type: ignore[no-untyped-def]
            return waiting.pop() if which == "waiting" else waiting[0]

        def victim(self, running):  # type: ignore[no-untyped-def]
            return running.pop() if which == "running" else running[-1]

    engine = simulate(policy=Grabbing(), blocks=8)
    names = [engine.add([n] * 9, greedy(12)) for n in range(3)]
    with pytest.raises(ValueError, match=f"changed the list of {which} requests"):
        engine.run()
    engine.reconfigure(policy="fcfs")
    finish(engine)
    assert all(engine.result(name).finished for name in names)

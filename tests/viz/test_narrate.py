"""The engine in words."""

from dataclasses import fields

import pytest

from minivllm import events as ev
from minivllm import narrate
from minivllm.narrate import Narrator, Who, sentence
from minivllm.viz.tick_log import MOST, tick_log

TICK = (ev.Start(1),)


def test_a_first_token_is_told_with_the_prompt_it_ends():
    told = [*TICK, ev.Run("B", 36, 9, False, True), ev.Token("B", 5, True)]
    assert sentence(told) == "B finishes its prompt and gets its first token."


def test_an_eviction_names_whose_blocks_they_were():
    teller = Narrator()
    teller.tell([ev.Publish("Z", 5, 5, "263a" * 16, None), ev.Publish("Z", 1, 4, "8a22" * 16, None)])
    told = [*TICK, ev.Evict(5, "263a" * 16, "B"), ev.Take("B", 5, 10), ev.Evict(1, "8a22" * 16, "B")]
    assert sentence(told, teller) == "To make room, two cached blocks of Z were evicted."


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        (ev.Wait("C", "memory", 7, 4), "C waits: it needs 7 blocks and 4 could be had."),
        (ev.Wait("C", "hole", 8, 3), "C waits: it needs 8 blocks in a row and the largest hole has 3."),
        (ev.Wait("C", "seats"), "C waits: every seat is taken."),
        (ev.Wait("C", "budget"), "C waits: the token budget of this tick is spent."),
        (ev.Wait("C", "preempted"), "C waits: a tick that preempts admits nobody."),
    ],
)
def test_a_wait_says_what_is_missing(wait, words):
    assert sentence([*TICK, wait]) == words


def test_a_finish_counts_what_stays_in_the_cache():
    gone = [ev.Release("Y", b, 0, kept) for b, kept in ((20, False), (9, True), (10, True), (19, True))]
    told = [*TICK, ev.Finish("Y", "length", 9), *gone]
    assert sentence(told) == "Y finished and left 3 blocks in the cache."


def test_a_request_that_starts_with_hits_says_how_many_tokens_they_save():
    told = [ev.Arrive("B", 45, 40), *TICK, ev.Hit("B", 13, 0, 2), ev.Hit("B", 23, 1, 2), ev.Admit("B", 8)]
    told.append(ev.Run("B", 8, 14, False, False))
    assert sentence(told) == "B starts with 8 tokens from the cache and computes 14 prompt tokens, 23 to go."


def test_a_preemption_says_for_whom_and_what_it_costs():
    told = [*TICK, ev.Preempt("C", 12, "A"), ev.Run("A", 30, 1, True, True)]
    words = "C is preempted to let A grow and loses 12 computed tokens. A gets one more token."
    assert sentence(told) == words


def test_a_request_that_starts_again_counts_the_tokens_it_had_generated_too():
    teller = Narrator()
    teller.tell([ev.Arrive("B", 5, 24), *(ev.Token("B", t, t == 0) for t in range(9))])
    again = [*TICK, ev.Admit("B", 0, resumed=True), ev.Run("B", 0, 1, False, False)]
    assert sentence(again, teller) == "B starts again and computes 1 token, 13 to go."
    rest = [ev.Start(2), ev.Run("B", 1, 13, False, True), ev.Token("B", 9, False)]
    assert sentence(rest, teller) == "B computes 13 more tokens."


def test_above_six_live_requests_a_tick_is_told_in_counts():
    teller = Narrator()
    names = [f"r{n}" for n in range(1, 10)]
    teller.tell([e for r in names for e in (ev.Arrive(r, 4, 4), ev.Admit(r, 0))])
    told = [*TICK, *(ev.Run(r, 9, 1, True, True) for r in names), ev.Take("r1", 3, 0)]
    assert sentence(told, teller) == "9 requests run, 0 wait. 1 block was taken."


def test_a_quiet_tick_says_so_and_what_lies_between_ticks_may_say_nothing():
    assert sentence([*TICK, ev.End(1)]) == "Nothing happened: nobody runs and nobody waits."
    assert sentence([ev.Text("A", "x")]) == ""


def test_requests_are_marked_so_that_a_picture_can_colour_them():
    spans = Narrator().tell([*TICK, ev.Run("A", 5, 1, True, True), ev.Run("B", 5, 1, True, True)])
    assert [s for s in spans if isinstance(s, Who)] == ["A", "B"]


def example(kind):
    values = {"int": 1, "str": "memory", "bool": False, "float": 1.0}
    filled = {}
    for f in fields(kind):
        name = str(f.type if isinstance(f.type, str) else getattr(f.type, "__name__", f.type))
        filled[f.name] = () if "tuple" in name else values.get(name.split(" ")[0].split("[")[0])
    return kind(**filled)


def test_every_kind_of_event_has_a_line_of_its_own():
    for kind in ev._REGISTRY.values():
        line = narrate.line(example(kind))
        assert line
        assert kind.kind in ("start", "end", "engine") or line != kind.kind, kind


def test_a_log_is_grouped_like_the_code_and_never_longer_than_a_dozen_lines():
    told = [
        *TICK,
        ev.Evict(5, "263a" * 16, "B"),
        ev.Take("B", 5, 0),
        ev.Take("B", 7, 1),
        ev.Run("B", 0, 8, False, True),
    ]
    told += [ev.Token("B", 42, True), ev.Publish("B", 5, 0, "beef" * 16, None)]
    lines = tick_log(told, {"B": 8}, {5: "Z"})
    assert [(line.phase, line.text) for line in lines] == [
        ("plan", "B takes block 7, which was free"),
        ("plan", "block 5 forgets Z's hash 263a; B takes it"),
        ("launch", "B computes all its 8 prompt tokens"),
        ("collect", "B: first token, id 42"),
        ("collect", "B's block 5 is full: hashed"),
    ]
    crowd = [e for n in range(40) for e in (ev.Take(f"r{n}", n, 0), ev.Publish(f"r{n}", n, 0, "beef" * 16, None))]
    assert len(tick_log([*TICK, *crowd], {}, {})) <= MOST
    assert tick_log([*TICK, *crowd], {}, {})[0].text == "40 blocks taken, by r0, r1, r2, r3 and 36 more"


def test_a_step_that_failed_is_told_up_to_there_and_not_what_the_engine_tells_anew():
    anew = [ev.Fail(True), ev.Engine(4, 14), ev.Arrive("D", 14, 6), ev.Admit("A", 0, True), ev.Finish("A", "length", 8)]
    told = [*TICK, ev.Run("C", 5, 1, True, True), ev.Finish("C", "length", 8), *anew, ev.Mend(), ev.End(1)]
    failed = "he step failed: the pool starts over, empty; whoever ran waits again"
    assert sentence(told) == f"C finished. T{failed}."
    assert [line.text for line in tick_log(told, {}, {})] == [
        "C computes 1 token", "C is done after 8 tokens", f"t{failed}"
    ]  # fmt: skip


def test_a_step_that_the_runner_failed_preempts_nobody_in_words():
    told = [*TICK, ev.Run("F", 0, 8, False, True), ev.Fail(False), ev.Preempt("F", 8, "F"), ev.Mend(), ev.End(1)]
    assert sentence(told).endswith("The step failed; whoever ran waits again.")
    assert "preempted" not in sentence(told)


def test_a_failure_between_two_ticks_hides_nothing_of_the_next_one():
    told = [
        ev.Fail(True),
        ev.Engine(4, 14),
        ev.Arrive("A", 9, 6),
        ev.Mend(),
        *TICK,
        ev.Admit("A", 0, True),
        ev.Run("A", 0, 9, False, True),
    ]
    assert "A starts again and computes 9 tokens." in sentence(told)

"""The scheduler view: who ran in which tick, told the same as text, as a picture, and by the engine itself."""

import re
from base64 import b64decode

import pytest

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.viz.gantt import as_text, chart
from minivllm.viz.scheduler_view import SETTINGS, SchedulerView


def add(engine, asked, first=0):
    for number, (prompt, answer) in enumerate(asked, first):
        tokens = list(range(100 * number, 100 * number + prompt))
        engine.add(tokens, SamplingParams(temperature=0, max_tokens=answer))


def ran(asked, **changes):
    engine = Engine(EngineConfig(**({"block_size": 4, "num_blocks": 64, "max_num_batched_tokens": 16} | changes)))
    log = engine.record()
    add(engine, asked)
    engine.run()
    return chart(log.ticks)


def marks(made):
    return {name: "".join(row.marks).rstrip() for name, row in made.rows.items()}


def test_a_prompt_in_chunks_is_p_and_every_further_token_d():
    assert marks(ran([(40, 3)])) == {"A": "pppdd"}


def test_who_waits_for_a_seat_is_a_dot_until_it_starts():
    made = ran([(4, 3), (4, 2)], max_num_seqs=1)
    assert marks(made) == {"A": "pdd", "B": "...pd"}
    assert [(row.first, row.done) for row in made.rows.values()] == [(1, 3), (4, 5)]


def test_a_seat_without_a_turn_is_a_dash():
    engine = Engine(EngineConfig(block_size=4, num_blocks=64, max_num_batched_tokens=8, mix_prefill_decode=False))
    log = engine.record()
    add(engine, [(4, 6)])
    engine.run(max_steps=2)
    add(engine, [(16, 2)], first=1)
    engine.run()
    assert marks(chart(log.ticks)) == {"A": "pd--dddd", "B": "  ppd"}


def test_a_preempted_request_waits_and_computes_again():
    made = ran([(8, 12), (8, 12)], num_blocks=7)
    assert marks(made)["B"] == "pdddd!......pdddddd"


def test_the_tokens_of_every_tick_are_counted_by_kind():
    made = ran([(20, 2), (4, 2)])
    assert [d + p for d, p in zip(made.decodes, made.prompts, strict=True)] == [16, 8, 2]


def test_the_text_has_a_row_per_request_and_a_legend_of_what_occurs():
    lines = as_text(ran([(4, 3), (4, 2)], max_num_seqs=1)).splitlines()
    assert lines[1] == "   A  pdd    first token 1, done 3"
    assert lines[-1].split("  ")[-3:] == [". waits", "p computes prompt tokens", "d decodes"]


@pytest.fixture
def view():
    engine = Engine(EngineConfig(block_size=4, num_blocks=64, max_num_batched_tokens=16))
    made = SchedulerView(engine, title="three requests")
    add(engine, [(5, 8), (30, 4), (6, 3)])
    made.step(4)
    return made


def test_it_moves_as_the_engine_view_does(view):
    assert (view.tick, view.engine.tick) == (4, 4)
    view.back(2)
    assert view.chart.ticks == 2
    view.step(3)
    assert (view.tick, view.engine.tick) == (5, 5)


def test_a_new_budget_counts_from_the_next_tick(view):
    view.change("max_num_batched_tokens", 8)
    assert view.settings["max_num_batched_tokens"] == 8
    add(view.engine, [(20, 2)], first=5)
    view.step()
    assert view.chart.prompts[-1] + view.chart.decodes[-1] == 8


def test_what_cannot_be_changed_is_refused_with_the_list(view):
    with pytest.raises(ValueError, match=r"block_size.*max_num_batched_tokens"):
        view.change("block_size", 8)
    view.handle({"type": "set", "name": "max_num_batched_tokens", "value": 0})
    assert "max_num_batched_tokens is 0" in view.error
    view.handle({"type": "set", "name": "mix_prefill_decode", "value": False})
    assert view.error == ""
    assert view.settings == {name: getattr(view.engine.config, name) for name in SETTINGS}


def test_the_snapshot_says_the_sentence_and_draws_every_cell(view):
    plain, html = view.static().values()
    assert plain.startswith(f"Tick 4. {view.sentence}")
    svg = b64decode(re.search(r"base64,([^\"]+)", html)[1]).decode()
    assert svg.count('fill="url(#hatch)"') >= sum("".join(row.marks).count("p") for row in view.chart.rows.values())
    assert "three requests" in svg
    assert view.static() == view.static()

"""Workloads are the same for everyone, and are played as they say: at their time, and turn after answer."""

from pathlib import Path

import pytest

from minivllm import EngineConfig
from minivllm.engine import Engine
from minivllm.lab import workloads
from minivllm.lab.device import BlankRunner, TimedRunner, TimeModel
from minivllm.lab.replay import play, serve
from minivllm.lab.workloads import Call, tokens_of

TRACES = Path(__file__).parents[2] / "assets" / "traces"


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_the_traces_in_assets_are_made_from_seed_0(name, tmp_path):
    workloads.save(workloads.make(name), tmp_path / "made.jsonl")
    assert (TRACES / f"{name}.jsonl").read_text() == (tmp_path / "made.jsonl").read_text()
    assert workloads.load(TRACES / f"{name}.jsonl") == workloads.make(name)
    assert workloads.make(name) != workloads.make(name, seed=1)


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_ids_are_unique_and_every_turn_follows_one_that_is_there(name):
    calls = workloads.make(name)
    ids = [call.id for call in calls]
    assert len(set(ids)) == len(ids)
    assert all(call.after is None or call.after in ids for call in calls)
    assert all(call.at >= 0 and call.output >= 1 and sum(size for _, size in call.prompt) >= 1 for call in calls)


def test_a_run_of_text_is_the_same_wherever_its_name_occurs():
    assert tokens_of((("a", 5), ("b", 3))) == tokens_of((("a", 5),)) + tokens_of((("b", 3),))
    assert tokens_of((("a", 9),))[:5] == tokens_of((("a", 5),))
    assert tokens_of((("a", 9),)) != tokens_of((("b", 9),))
    assert all(16 <= token < 100 for token in tokens_of((("a", 500),), vocab_size=100))


def test_a_file_that_is_wrong_is_refused_with_its_line(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"id":"x","at":0,"prompt":[["a",1]],"output":1}\n{"id":"y"}\n')
    with pytest.raises(ValueError, match=r"bad.jsonl, line 2"):
        workloads.load(tmp_path / "bad.jsonl")


def test_an_unknown_workload_names_those_there_are():
    with pytest.raises(ValueError, match="chat, agent, batch, bursty"):
        workloads.make("chats")


def test_calls_arrive_on_the_devices_clock():
    runner = TimedRunner(BlankRunner(), TimeModel(step=1.0, row=0, prefill=0, context=0))
    with Engine(EngineConfig(num_blocks=16), runner=runner) as engine:
        ticks = {}
        calls = [Call("late", 7.5, (("a", 4),), 2), Call("early", 0.0, (("b", 4),), 3)]
        play(engine, calls, runner, on_tick=lambda: ticks.update({engine.tick: [*engine.scheduler.requests]}))
        assert ticks == {1: ["early"], 2: ["early"], 3: [], 4: ["late"], 5: []}
        assert runner.now() == 9.5  # idle from 3.0 to 7.5, then two steps


def test_a_turn_begins_with_the_conversation_so_far_and_hits_its_blocks():
    calls = [Call("1", 0.0, (("a", 40),), 9), Call("2", 1.0, (("b", 10),), 4, after="1")]
    metrics, recording = serve(EngineConfig(num_blocks=64), calls)
    cached = [e.cached for tick in recording.ticks for e in tick if e.kind == "admit"]
    assert cached == [0, 48]  # 48 of 49 tokens had been computed: three blocks
    assert metrics.finished == {"length": 2}


def test_a_turn_that_follows_nobody_is_refused():
    with pytest.raises(ValueError, match="follow ghost"):
        serve(EngineConfig(num_blocks=64), [Call("1", 0.0, (("a", 4),), 1, after="ghost")])


def test_a_server_without_a_pool_is_refused():
    with pytest.raises(ValueError, match="num_blocks"):
        serve(EngineConfig(), [])


def test_time_is_paid_per_step_row_prompt_token_and_context():
    from minivllm.core.plan import Plan, Row

    model = TimeModel(step=1000, row=100, prefill=10, context=1)
    rows = (Row("A", 1, 0, 3, True), Row("B", 2, 4, 1, True))
    assert model.seconds(Plan(1, rows)) == 1000 + 2 * 100 + 3 * 10 + (3 + 5)
    assert model.seconds(Plan(1, ())) == 0


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_every_workload_can_be_served_and_shares_what_it_says(name):
    metrics, _ = serve(EngineConfig(num_blocks=1024, max_num_seqs=32), workloads.make(name))
    assert sum(metrics.finished.values()) == len(workloads.make(name))
    assert metrics.hit_rate > 0.5


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TimeModel(step=-1.0), "TimeModel.step is -1.0; allowed: seconds, 0 or more"),
        (lambda: TimeModel(context=float("nan")), "TimeModel.context is nan"),
        (lambda: Call("a", -1.0, (("a", 4),), 4), "at of call 'a' is -1.0"),
        (lambda: Call("a", 0.0, (("a", 4),), 0), "output of call 'a' is 0"),
        (lambda: workloads.chat(rate=0), "rate is 0; allowed: a number above 0"),
        (lambda: workloads.chat(conversations=-1), "conversations is -1"),
        (lambda: workloads.agent(sessions=2.5), "sessions is 2.5"),
    ],
)
def test_a_number_that_cannot_be_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()

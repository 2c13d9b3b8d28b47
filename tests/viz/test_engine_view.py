"""The engine view driven from Python as its front end would: by messages."""

import re
from base64 import b64decode

import pytest

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.viz import lifetime
from minivllm.viz.engine_view import EngineView


@pytest.fixture
def view(scene):
    return EngineView(scene.engine)


def sent(view, kind):
    return [m for m in view.messages if m["type"] == kind]


@pytest.fixture(autouse=True)
def messages(monkeypatch):
    def keep(self, content, buffers=None):
        self.__dict__.setdefault("messages", []).append(content)

    monkeypatch.setattr(EngineView, "send", keep)


def test_before_the_first_tick_the_view_says_how_to_begin(view):
    assert (view.tick, view.edge, view.sentence) == (0, 0, "Nothing has run yet: press → to run one tick.")


def test_a_step_at_the_edge_runs_one_tick_and_sends_it_once(scene, view):
    scene.ask("A", 9, 200, 6)
    view.handle({"type": "goto", "tick": 1})
    assert scene.engine.tick == view.tick == 1
    assert [m["tick"] for m in sent(view, "tick")] == [1]
    assert sent(view, "done")[-1]["idle"] is False


def test_going_back_shows_the_recording_and_never_runs_the_engine(scene, view):
    scene.traffic()
    live = scene.engine.snapshot()
    view.tick = 3
    third = view.snapshot
    view.tick = 99
    assert view.tick == 14 and view.snapshot == live
    view.back(11)
    assert view.snapshot == third and third.tick == 3 and scene.engine.tick == 14
    view.tick = -5
    assert view.tick == 0


def test_ticks_that_others_run_move_the_view_only_from_the_live_edge(scene, view):
    scene.ask("A", 9, 200, 9)
    scene.engine.step()
    assert view.tick == 1
    view.back()
    scene.engine.step()
    assert (view.tick, view.edge) == (0, 2)


def test_a_view_made_late_starts_where_the_engine_is(scene):
    scene.traffic()
    late = EngineView(scene.engine)
    assert late.tick == late.edge == late.track.first == 14
    assert late.sentence == "The recording begins here, after tick 14."
    assert late.snapshot == scene.engine.snapshot()
    late.step()
    assert late.tick == 15 and late.snapshot == scene.engine.snapshot()
    late.tick = 0
    assert late.tick == 14


# S48: a callback that fails must be seen


@pytest.mark.parametrize(
    "message",
    [
        {"type": "goto", "tick": 99},
        {"type": "run"},
        {"type": "set", "name": "block_size", "value": 8},
        {"type": "add", "prompt": "one two", "max_tokens": 4},
        {"type": "abort", "request": "A"},
    ],
)
def test_a_failing_callback_shows_its_error_and_the_next_click_works(scene, view, monkeypatch, message):
    scene.ask("A", 9, 200, 6)

    def broken(*_, **__):
        raise RuntimeError("broken on purpose")

    for name in ("step", "reconfigure", "add", "abort"):
        monkeypatch.setattr(scene.engine, name, broken)
    view.handle(message)
    assert view.error == "RuntimeError: broken on purpose"
    assert sent(view, "done")[-1]["of"] == message["type"]
    monkeypatch.undo()
    monkeypatch.setattr(EngineView, "send", lambda *_: None)
    view.handle({"type": "goto", "tick": 1})
    assert (view.error, view.tick, scene.engine.tick) == ("", 1, 1)
    assert view.snapshot == scene.engine.snapshot()


def test_a_step_that_fails_midway_leaves_a_view_that_agrees_with_the_engine(scene, view, monkeypatch):
    scene.ask("A", 9, 200, 6)

    def broken(plan):
        raise RuntimeError("the runner broke")

    monkeypatch.setattr(scene.engine.runner, "launch", broken)
    view.handle({"type": "goto", "tick": 1})
    assert view.error == "RuntimeError: the runner broke"
    monkeypatch.undo()
    monkeypatch.setattr(EngineView, "send", lambda *_: None)
    view.step(2)
    assert view.snapshot == scene.engine.snapshot()
    view.back()
    view.step()
    assert view.track.recorder.at(view.track.index(view.tick)) == scene.engine.snapshot()


@pytest.mark.parametrize("message", [{}, {"type": "dance"}, {"type": "goto", "tick": "soon"}, {"type": "set"}])
def test_a_message_nobody_understands_is_an_error_not_a_crash(view, message):
    view.handle(message)
    assert view.error.startswith("ValueError")


def test_a_setting_outside_the_allowed_ones_is_refused_by_name(scene, view):
    view.handle({"type": "set", "name": "device", "value": "cuda"})
    assert "'device' cannot be changed here" in view.error
    view.handle({"type": "set", "name": "block_size", "value": 0})
    assert "block_size" in view.error
    assert scene.engine.config.block_size == 4


# S50: running a cell again; a view of a dead engine


def test_three_views_of_one_engine_and_one_click_run_one_tick(scene):
    scene.ask("A", 9, 200, 6)
    views = [EngineView(scene.engine) for _ in range(3)]
    views[-1].handle({"type": "goto", "tick": 1})
    assert scene.engine.tick == 1
    assert [v.edge for v in views] == [1, 1, 1]


def test_a_cell_run_again_closes_the_view_it_made_before(scene, monkeypatch):
    monkeypatch.setattr(lifetime, "cell", lambda: "cell-7")
    first, second = EngineView(scene.engine), EngineView(scene.engine)
    scene.ask("A", 9, 200, 6)
    scene.engine.step()
    assert (first.edge, second.edge) == (0, 1)


def test_the_view_of_a_replaced_engine_says_so_and_does_nothing(scene, monkeypatch):
    variables = {"engine": scene.engine}
    monkeypatch.setattr(lifetime, "namespace", lambda: variables)
    scene.ask("A", 9, 200, 6)
    old = EngineView(scene.engine)
    variables["engine"] = Engine(EngineConfig(block_size=8, num_blocks=12))
    old.handle({"type": "goto", "tick": 1})
    assert old.disabled and scene.engine.tick == 0
    assert old.notice == f"this view belongs to engine {scene.engine.number}, which was replaced"


def test_a_new_view_disables_those_whose_engine_is_gone(scene, monkeypatch):
    variables = {"engine": scene.engine}
    monkeypatch.setattr(lifetime, "namespace", lambda: variables)
    old = EngineView(scene.engine)
    variables["engine"] = Engine(EngineConfig(block_size=8, num_blocks=12))
    new = EngineView(variables["engine"])
    assert (old.disabled, new.disabled) == (True, False)


def test_the_view_of_a_closed_engine_says_so(scene, view):
    scene.engine.close()
    view.handle({"type": "goto", "tick": 1})
    assert view.disabled and view.notice.endswith("which was closed")


# S51: reload and restart


def test_the_static_snapshot_is_deterministic_and_needs_no_network(scene, view):
    scene.traffic()
    static = view.static()
    assert static == view.static()
    picture = b64decode(re.search(r"base64,([^\"]+)", static["text/html"])[1]).decode()
    assert view.sentence in " ".join(re.findall(r">([^<]+)<", picture))
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", static["text/plain"] + picture)
    assert static["text/plain"].startswith("Tick 14. ")


def test_a_page_that_loads_later_gets_what_it_lacks(scene, view):
    scene.traffic()
    scene.ask("Q", 5, 900, 2)
    view.handle({"type": "hello", "have": 12})
    sync = sent(view, "sync")[-1]
    assert [t["tick"] for t in sync["ticks"]] == [13, 14]
    assert [t["event"]["kind"] for t in sync["between"]] == ["arrive"]


# S52: play, slider and Stop against a slow kernel


def test_fifty_slider_messages_cost_at_most_fifty_steps(scene, view, monkeypatch):
    scene.ask("A", 9, 200, 80)
    steps, step = [], scene.engine.step
    monkeypatch.setattr(scene.engine, "step", lambda: steps.append(1) or step())
    for target in range(1, 51):
        view.handle({"type": "goto", "tick": target})
    assert (len(steps), view.tick) == (50, 50)
    for target in (10, 3, 10):
        view.handle({"type": "goto", "tick": target})
    assert (len(steps), view.tick) == (50, 10)


def test_a_long_run_goes_in_slices_and_stops_when_the_work_is_done(scene, view):
    scene.ask("A", 9, 200, 40)
    view.handle({"type": "run"})
    assert (view.edge, sent(view, "done")[-1]["more"]) == (16, True)
    while sent(view, "done")[-1]["more"]:
        view.handle({"type": "run"})
    assert not scene.engine.has_unfinished and view.edge < 60
    view.handle({"type": "goto", "tick": 10_000})
    assert view.tick == view.edge and sent(view, "done")[-1]["idle"]


def test_a_live_edit_applies_at_the_live_edge(scene, view):
    scene.traffic()
    view.tick = 5
    view.set_block_size(8)
    assert (view.tick, view.snapshot.block_size, view.snapshot.num_blocks) == (14, 8, 12)
    assert "block_size changed" in view.sentence
    view.step()
    assert view.snapshot == scene.engine.snapshot()
    view.back()
    assert view.snapshot.block_size == 4


def test_words_typed_into_a_simulation_share_blocks_and_are_kept(scene, view):
    view.handle({"type": "add", "prompt": "you are a careful assistant one two three", "max_tokens": 4})
    view.handle({"type": "goto", "tick": 1})
    view.handle({"type": "add", "prompt": "you are a careful assistant four five six", "max_tokens": 4})
    view.handle({"type": "goto", "tick": 2})
    assert view.snapshot.request("B").cached == 4
    assert sent(view, "tick")[0]["words"]["A"][:3] == ["you", "are", "a"]


def test_the_static_picture_of_a_pool_of_thousands_stays_small_and_marks_every_block():
    engine = Engine(EngineConfig(block_size=4, num_blocks=3000))
    view = EngineView(engine)
    for first in (0, 10_000):
        engine.add([*range(first, first + 2000)], SamplingParams(temperature=0, max_tokens=3))
    view.step(4)
    html = view.static()["text/html"]
    picture = b64decode(re.search(r"base64,([^\"]+)", html)[1]).decode()
    assert len(html) < 150_000
    assert picture.count("h-8z") == 3000


@pytest.mark.parametrize("tick", ["a", None, 1.5, [3]])
def test_a_tick_that_is_no_whole_number_is_refused_and_nothing_moves(scene, tick):
    view = EngineView(scene.engine)
    before = view.tick
    with pytest.raises(ValueError, match="allowed: a whole number"):
        view.tick = tick
    assert view.tick == before

"""What happened is told completely, costs nothing when nobody listens, and survives a file."""

import json
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
from simulated import Letters, Scripted, finish, greedy, run, simulate

from minivllm import events as ev
from minivllm.core.policy import FCFS, Priority, ShortestPrompt
from minivllm.recorder import Recorder, Replay

KINDS = [k for k in vars(ev).values() if isinstance(k, type) and issubclass(k, ev.Event) and k is not ev.Event]
EXAMPLES = {
    "int": 3, "str": "A", "bool": True, "str | None": "x", "tuple[int, ...]": (1, 2), "tuple[str, ...]": ("a", "b"),
}  # fmt: skip


def example(kind: type[ev.Event]) -> ev.Event:
    """An event with something in every field."""
    names = {
        name: hint.__name__ if isinstance(hint, type) else str(hint) for name, hint in get_type_hints(kind).items()
    }
    return kind(**{field.name: EXAMPLES[names[field.name]] for field in fields(kind)})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_kind_of_event_survives_json(kind: type[ev.Event]) -> None:
    event = example(kind)
    assert ev.from_dict(json.loads(json.dumps(event.to_dict()))) == event
    assert event.phase in ("plan", "launch", "collect", "engine")
    assert kind.__doc__


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ev.Start(1).tick = 2  # type: ignore[misc]


def eventful() -> tuple[Any, Recorder]:
    """An engine that has seen nearly everything, and its recorder."""
    engine = simulate(bs=4, blocks=7)
    recorder = engine.record()
    run(engine, range(9))
    names = [engine.add(prompt, greedy(12)) for prompt in (range(8), range(50, 58))]
    for _ in range(3):
        engine.step()
    engine.abort(engine.fork(names[0]))
    finish(engine)
    assert engine.reset_prefix_cache()
    engine.reconfigure(block_size=8)
    engine.add(range(5), greedy(4, n=3))
    finish(engine)
    return engine, recorder


def test_a_recording_comes_back_from_its_file(tmp_path: Path) -> None:
    engine, recorder = eventful()
    path = tmp_path / "life.jsonl"
    recorder.save(path)
    loaded = Recorder.load(path)
    assert loaded.ticks == recorder.ticks
    assert loaded.at(loaded.last_tick) == engine.snapshot()
    assert all(json.loads(line)["kind"] for line in path.read_text().splitlines())


def test_every_tick_can_be_visited_again_in_any_order() -> None:
    engine = simulate(bs=4, blocks=8)
    recorder = engine.record()
    for k in range(3):
        engine.add(range(10 * k, 10 * k + 8), greedy(9))
    seen = [engine.snapshot()]
    while engine.has_unfinished:
        engine.step()
        seen.append(engine.snapshot())
    for tick in [*range(1, len(seen)), *reversed(range(1, len(seen)))]:
        assert recorder.at(tick) == seen[tick]
    assert recorder.at(0) == seen[0]
    assert [e.tick for e in recorder.events_of(4) if isinstance(e, ev.Start)] == [4]


def test_a_recorder_that_comes_late_or_goes_early_is_right_about_its_time() -> None:
    engine = simulate(bs=4, blocks=7)
    for prompt in (range(8), range(50, 58), range(80, 90)):
        engine.add(prompt, greedy(12))
    run(engine, range(3))
    for prompt in (range(8), range(50, 58), range(80, 90)):
        engine.add(prompt, greedy(12))
    for _ in range(7):
        engine.step()
    recorder = engine.record()
    assert recorder.at(recorder.last_tick).tick == 0 or recorder.last_tick == 0
    engine.step()
    assert recorder.at(1) == engine.snapshot()
    recorder.detach()
    recorder.detach()  # twice is harmless
    finish(engine)
    assert recorder.last_tick == 1
    assert not engine.bus.active


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2"),
        ('{"kind": "no such"}', "unknown event kind 'no such'"),
        ('{"kind": "start"}', "event 'start'"),
        ('{"kind": "start", "tick": 1, "extra": 2}', "event 'start'"),
        ("[1, 2]", "line 2"),
        ("5", "line 2"),
        ("null", "line 2"),
        ('{"kind": ["start"]}', "line 2"),
        ('{"tick": 1}', "unknown event kind None"),
        ("", "line 2"),
    ],
)
def test_a_damaged_file_is_refused_with_the_line(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "damaged.jsonl"
    path.write_text('{"kind":"start","tick":1}\n' + line + "\n")
    with pytest.raises(ValueError, match="line 2") as caught:
        Recorder.load(path)
    assert says in str(caught.value)


def test_asking_for_a_tick_that_was_not_recorded_says_which_were() -> None:
    engine = simulate()
    recorder = engine.record()
    engine.step()
    for ask in (recorder.at, recorder.events_of):
        with pytest.raises(ValueError, match=r"recorded: [01] to 1"):
            ask(7)


def test_a_silent_engine_builds_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(self: ev.Event, *args: Any, **kwargs: Any) -> None:
        raise AssertionError(f"{type(self).__name__} was built for nobody")

    for kind in KINDS:
        monkeypatch.setattr(kind, "__init__", explode)
    engine = simulate(bs=4, blocks=7)
    names = [engine.add(prompt, greedy(12)) for prompt in (range(8), range(50, 58))]
    engine.add(range(4), greedy(2, n=2))
    for _ in range(3):
        engine.step()
    engine.fork(names[0])
    engine.abort(names[1])
    engine.reconfigure(block_size=2)
    engine.run()
    assert engine.reset_prefix_cache()


def test_listeners_hear_everything_in_order_and_can_leave_while_listening() -> None:
    bus, heard = ev.Bus(), []

    def once(event: ev.Event) -> None:
        heard.append(("once", event))
        leave()

    leave = bus.subscribe(once)
    bus.subscribe(lambda event: heard.append(("always", event)))
    for tick in (1, 2):
        bus.emit(ev.Start(tick))
    assert heard == [("once", ev.Start(1)), ("always", ev.Start(1)), ("always", ev.Start(2))]


def test_all_that_changes_the_picture_has_its_place_in_the_replay() -> None:
    told = {kind.kind for kind in KINDS}
    handled = {name.removeprefix("_on_") for name in dir(Replay) if name.startswith("_on_")}
    assert handled <= told
    assert told - handled == {"wait", "text", "fail", "mend"}


def test_a_hit_a_copy_and_an_eviction_are_told_with_their_blocks() -> None:
    engine = simulate(bs=4, blocks=4)
    recorder = engine.record()
    run(engine, range(9))
    run(engine, range(9))
    (first, second) = [e for events in recorder.ticks for e in events if isinstance(e, ev.Hit)]
    assert (first.index, first.ref, second.index) == (0, 1, 1)
    engine.add(range(6), greedy(2, n=2))
    finish(engine)
    (copy,) = [e for events in recorder.ticks for e in events if isinstance(e, ev.Copy)]
    assert copy.source != copy.block
    run(engine, range(50, 66))
    evicted = [e for events in recorder.ticks for e in events if isinstance(e, ev.Evict)]
    assert evicted
    assert all(len(bytes.fromhex(e.hash)) == 16 for e in evicted)


def test_text_is_an_event_where_there_is_a_tokenizer() -> None:
    model = SimpleNamespace(
        name="letters", tokenizer=Letters(), spec=SimpleNamespace(max_position=64, eos_token_ids=(2,))
    )
    engine = simulate(model=model, runner=Scripted(64, 4, [ord(c) for c in "hello"], 2))
    recorder = engine.record()
    name = engine.add("ab", greedy(5))
    finish(engine)
    assert "".join(e.text for events in recorder.ticks for e in events if isinstance(e, ev.Text)) == "hello"
    assert engine.result(name).outputs[0].text == "hello"


@pytest.mark.parametrize(
    ("how", "name"),
    [({"policy": "shortest-prompt"}, "shortest-prompt"), ({"policy": ShortestPrompt(9)}, "shortest-prompt"),
     ({"policy": type("Mine", (FCFS,), {})()}, "Mine"), ({}, "fcfs")],
)  # fmt: skip
def test_the_policy_that_is_told_is_the_one_that_chooses(how: dict[str, Any], name: str) -> None:
    engine = simulate(**how)
    told: list[str] = []
    engine.bus.subscribe(lambda event: told.append(event.policy) if isinstance(event, ev.Engine) else None)
    assert engine.record().ticks[0][0].policy == name  # type: ignore[attr-defined]
    engine.reconfigure(max_num_seqs=3)
    engine.reconfigure(policy=Priority())
    assert told == [name, "priority"]


@pytest.mark.parametrize("blocks", [10, 64, 65, 128, 1000])
def test_a_snapshot_in_text_shows_every_block_in_use_and_folds_what_is_free(blocks: int) -> None:
    engine = simulate(blocks=blocks)
    engine.add(list(range(9)), greedy(9), request_id="A")
    engine.step()
    head, first, *rest = engine.snapshot().to_text().splitlines()
    assert head.startswith(f"tick 1: 3 of {blocks} blocks in use")
    assert first.split() == ["0", "AAA" + "." * (min(blocks, 64) - 3)]
    assert rest.pop().startswith("  A running")
    if blocks <= 64:
        assert rest == []
    elif blocks <= 128:
        assert rest[0].split() == ["64", "." * (blocks - 64)] and len(rest) == 1
    else:
        assert rest == [f"    64 {'.' * 64} and so on to {blocks - 1}, all free"]

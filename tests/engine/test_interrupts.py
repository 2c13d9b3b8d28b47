"""The stop button may come at any moment: the interrupt reaches the user, the engine goes on, and no text is lost."""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from simulated import Interrupted, Letters, Scripted, alone, available, finish, greedy, run, simulate, tokens_of, used

from minivllm import Engine
from minivllm.recorder import Replay

PROMPTS = [list(range(10 * k, 10 * k + 6)) for k in range(4)]


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupted_step_is_made_again(after: bool) -> None:
    engine = simulate(bs=4, runner=Interrupted(64, 4, when=[3, 5], after=after))
    recorder = engine.record()
    names = [engine.add(prompt, greedy(9)) for prompt in PROMPTS]
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            engine.run()
        assert engine.audit() == []
        assert used(engine) == 0
        assert recorder.at(recorder.last_tick) == engine.snapshot()
        assert [r.id for r in engine.scheduler.waiting] == names
    finish(engine)
    assert [tokens_of(engine.result(name)) for name in names] == [alone(prompt, 9) for prompt in PROMPTS]


def test_nothing_of_an_interrupted_step_is_published() -> None:
    engine = simulate(bs=4, budget=6, runner=Interrupted(64, 4, when=[2], after=True))
    engine.add(range(17), greedy(1))
    engine.step()
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    assert len(engine.scheduler.cache.index) == 1  # type: ignore[attr-defined]  # of the first chunk


def test_after_an_interrupt_the_user_can_drop_everything_and_go_on() -> None:
    engine = simulate(bs=4, blocks=16, runner=Interrupted(16, 4, when=[3]))
    for prompt in PROMPTS:
        engine.add(prompt, greedy(9))
    with pytest.raises(KeyboardInterrupt):
        engine.run()
    for name in tuple(engine.scheduler.requests):
        engine.abort(name)
    assert not engine.has_unfinished
    assert available(engine) == 16
    assert tokens_of(run(engine, range(9), 4)) == alone(range(9), 4)
    engine.step()
    assert not engine.runner.tokens  # type: ignore[attr-defined]  # the runner has forgotten everybody


def test_the_runner_hears_once_more_of_those_who_had_just_left() -> None:
    engine = simulate(bs=4, runner=Interrupted(64, 4, when=[2]))
    short, longer = engine.add(range(6), greedy(1)), engine.add(range(20, 26), greedy(3))
    assert engine.step().finished == (short,)
    with pytest.raises(KeyboardInterrupt):  # the plan that told the runner was lost
        engine.step()
    engine.step()
    assert list(engine.runner.tokens) == [longer]  # type: ignore[attr-defined]
    finish(engine)


class Stop:
    """Raises `KeyboardInterrupt` when the `at`-th line of the package is about to run; `spare` is the name of a function."""

    def __init__(self, at: int, spare: str = "_recover") -> None:
        self.left, self.spare = at, spare

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if "/minivllm/" not in frame.f_code.co_filename or frame.f_code.co_name == self.spare:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


def busy() -> tuple[Engine, list[str]]:
    """An engine before two eventful steps: a preemption and an end, then a resumption, hits, and samples that fork."""
    engine = simulate(bs=4, blocks=7)
    names = [engine.add(range(8), greedy(3)), engine.add(range(50, 57), greedy(9)), engine.add(range(6), greedy(5))]
    for _ in range(2):
        engine.step()
    names.append(engine.add(range(8), greedy(2, n=2)))
    return engine, names


def interrupted(engine: Engine, line: int, listening: bool, act: Callable[[], Any]) -> bool:
    """Interrupt `act` at its `line`-th line; the books must be in order, and a listener must know them. Whether it was over
    before the line came."""
    replay, over = Replay(), False
    if listening:
        for event in engine.record().ticks[0]:
            replay.apply(event)
        engine.bus.subscribe(replay.apply)
    before = sys.gettrace()
    sys.settrace(Stop(line))
    try:
        act()
        over = True
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    assert engine.audit() == [], line
    if listening:
        assert replay.snapshot() == replace(engine.snapshot(), free=replay.free, tick=replay.tick), line
    return over


@pytest.mark.parametrize("listening", [False, True])
def test_whichever_line_is_interrupted_every_request_says_what_it_would_have_said(listening: bool) -> None:
    truth = [alone(range(8), 3), alone(range(50, 57), 9), alone(range(6), 5), alone(range(8), 2)]
    line, over = 0, False
    while not over:
        line += 1
        engine, names = busy()
        over = interrupted(engine, line, listening, partial(engine.run, max_steps=2))
        finish(engine)
        for name, tokens in zip(names, truth, strict=True):
            output = engine.result(name)
            assert output.finished, (line, name)
            assert [sample.token_ids for sample in output.outputs] == [tokens] * len(output.outputs), (line, name)
        assert len(engine.result(names[-1]).outputs) == 2, line
        assert available(engine) == 7, line
    assert line > 200


@pytest.mark.parametrize("listening", [False, True])
def test_a_second_interrupt_while_the_first_is_mended_loses_nothing_either(listening: bool) -> None:
    truth = [alone(range(8), 3), alone(range(50, 57), 9), alone(range(6), 5), alone(range(8), 2)]
    line, over = 1, False  # in the first line the engine learns that there is something to mend
    while not over:
        line += 1
        engine, names = busy()
        recorder = engine.record() if listening else None
        launch, before, stop = engine.runner.launch, sys.gettrace(), Stop(line, spare="")

        def cut_short(plan: Any, engine: Engine = engine, launch: Any = launch, stop: Stop = stop) -> None:
            engine.runner.launch = launch  # type: ignore[method-assign]
            sys.settrace(stop)  # of all that comes, which is the mending
            raise KeyboardInterrupt

        engine.runner.launch = cut_short  # type: ignore[method-assign]
        try:
            with pytest.raises(KeyboardInterrupt):
                engine.step()
        finally:
            sys.settrace(before)
        over = stop.left > 0
        finish(engine)
        for name, tokens in zip(names, truth, strict=True):
            output = engine.result(name)
            assert [sample.token_ids for sample in output.outputs] == [tokens] * len(output.outputs), (line, name)
        assert len(engine.result(names[-1]).outputs) == 2, line
        assert available(engine) == 7, line
        if recorder:
            assert recorder.at(recorder.last_tick) == engine.snapshot(), line
    assert line > 50


def test_a_listener_may_look_at_the_engine_while_a_failure_is_mended() -> None:
    engine = simulate(bs=4, runner=Interrupted(64, 4, when=[3]))
    name, looks = engine.add(range(6), greedy(9)), []

    def listen(event: Any) -> None:
        if event.kind in ("fail", "mend"):
            looks.append((event.kind, engine.snapshot().tick))

    engine.bus.subscribe(listen)
    with pytest.raises(KeyboardInterrupt):
        engine.run()
    assert looks == [("fail", 3), ("mend", 3)]
    finish(engine)
    assert tokens_of(engine.result(name)) == alone(range(6), 9)


@pytest.mark.parametrize("stop", [[], ["zz"]])
def test_a_tokenizer_that_cannot_read_one_request_leaves_the_engine_to_the_others(stop: list[str]) -> None:
    class Odd(Letters):
        def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
            if ord("c") in ids:
                raise OverflowError("no such token")
            return super().decode(ids)

    model = SimpleNamespace(name="odd", tokenizer=Odd(), spec=SimpleNamespace(max_position=512, eos_token_ids=()))
    engine = simulate(model=model, runner=Scripted(64, 4, [ord(letter) for letter in "abcd"], 6))
    bad = engine.add(range(6), greedy(4, stop=stop))
    with pytest.raises(OverflowError):
        engine.run()
    assert engine.audit() == []
    with suppress(OverflowError):  # its text cannot be made
        engine.abort(bad)
    assert engine.audit() == [] and not engine.scheduler.requests
    assert tokens_of(run(engine, range(20, 26), 2)) == [ord("a"), ord("b")]


def test_a_listener_that_fails_on_the_news_of_a_failure_does_not_keep_the_engine_from_mending_it() -> None:
    engine = simulate(bs=4, runner=Interrupted(64, 4, when=[3]))
    name = engine.add(range(6), greedy(9))

    def listen(event: Any) -> None:
        if event.kind == "fail":
            raise ZeroDivisionError

    engine.bus.subscribe(listen)
    with pytest.raises((KeyboardInterrupt, ZeroDivisionError)):
        engine.run()
    finish(engine)
    assert tokens_of(engine.result(name)) == alone(range(6), 9)


OPERATIONS = {
    "add": lambda engine, names: engine.add(range(30, 36), greedy(3)),
    "add two samples": lambda engine, names: engine.add(range(30, 36), greedy(3, n=2)),
    "abort": lambda engine, names: engine.abort(names[1]),
    "abort samples": lambda engine, names: engine.abort(names[3]),
    "fork": lambda engine, names: engine.fork(engine.scheduler.running[0].id),
    "another block size": lambda engine, names: engine.reconfigure(block_size=2),
    "another policy": lambda engine, names: engine.reconfigure(policy="priority"),
    "reset": lambda engine, names: engine.reset_prefix_cache(),
}


@pytest.mark.parametrize("listening", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_whichever_line_of_a_call_is_interrupted_the_engine_goes_on(name: str, listening: bool) -> None:
    line, over = 0, False
    while not over:
        line += 1
        engine, names = busy()
        engine.run(max_steps=3)
        over = interrupted(engine, line, listening, partial(OPERATIONS[name], engine, names))
        finish(engine, 200)
        assert all(engine.result(one).finished for one in names), line
        assert tokens_of(run(engine, range(6), 2)) == alone(range(6), 2), line
        assert available(engine) == engine.config.num_blocks, line
    assert line > 5


@pytest.mark.parametrize("name", [*OPERATIONS, "step"])
@pytest.mark.parametrize("quiet", range(0, 12, 3))
def test_a_listener_that_goes_on_failing_costs_nobody_a_token(name: str, quiet: int) -> None:
    engine, names = busy()
    engine.run(max_steps=3)
    left = [quiet]

    def listen(event: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise ZeroDivisionError(event.kind)

    unsubscribe = engine.bus.subscribe(listen)
    act = OPERATIONS.get(name, lambda engine, names: engine.step())
    try:
        act(engine, names)
    except ZeroDivisionError:
        assert not engine.bus.active
    assert engine.audit() == []
    live = set(engine.scheduler.requests)
    assert {r.id for r in (*engine.scheduler.waiting, *engine.scheduler.running)} == live
    unsubscribe()
    finish(engine, 200)
    truth = [alone(range(8), 3), alone(range(50, 57), 9), alone(range(6), 5), alone(range(8), 2)]
    for one, tokens in zip(names, truth, strict=True):
        for sample in engine.result(one).outputs:
            assert sample.token_ids == tokens[: len(sample.token_ids)]
            assert sample.finish_reason == "abort" or sample.token_ids == tokens
    assert available(engine) == engine.config.num_blocks

"""When a request ends and what it shows: end tokens, stop strings, half characters, limits."""

import sys
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from simulated import Letters, Scripted, finish, greedy, record_plans, simulate, used

from minivllm import Engine, SamplingParams
from minivllm.detokenizer import Detokenizer
from minivllm.metrics import Metrics
from minivllm.output import CompletionOutput


def scripted(script: list[int] | str, *, eos: tuple[int, ...] = (2, 5), prompt: int = 2, **options: Any) -> Engine:
    """A model that says `script` after a prompt of `prompt` tokens, and whose end tokens are `eos`."""
    ids = [ord(letter) for letter in script] if isinstance(script, str) else script
    model = SimpleNamespace(
        name="script", tokenizer=Letters(), spec=SimpleNamespace(max_position=512, eos_token_ids=eos)
    )
    return simulate(model=model, runner=Scripted(64, 4, ids, prompt), **options)


def says(engine: Engine, params: SamplingParams) -> CompletionOutput:
    name = engine.add([40, 41], params)
    finish(engine)
    assert used(engine) == 0
    return engine.result(name).outputs[0]


A, B, C = ord("a"), ord("b"), ord("c")


def test_every_end_token_of_the_list_ends_the_text_and_is_not_shown() -> None:
    output = says(scripted([A, B, 5, C]), greedy(9))
    assert (output.token_ids, output.text, output.finish_reason, output.stop_reason) == ([A, B, 5], "ab", "stop", None)


def test_an_end_token_in_first_place_ends_it_before_any_decode() -> None:
    engine = scripted([2, A])
    plans = record_plans(engine)
    output = says(engine, greedy(9))
    assert (output.token_ids, output.text, output.finish_reason) == ([2], "", "stop")
    assert not any(plan.decode_only for plan in plans)


def test_ignore_eos_goes_on_to_the_limit() -> None:
    output = says(scripted([A, 5, 2, B, C, A, B]), greedy(6, ignore_eos=True))
    assert (output.token_ids, output.finish_reason) == ([A, 5, 2, B, C, A], "length")


def test_an_end_token_in_last_place_is_a_stop() -> None:
    assert says(scripted([A, 5]), greedy(2)).finish_reason == "stop"
    assert says(scripted([A, B]), greedy(2)).finish_reason == "length"


def test_stop_token_ids_add_to_the_end_tokens_and_survive_ignore_eos() -> None:
    assert says(scripted([A, 5, B, C]), greedy(9, stop_token_ids=[B])).token_ids == [A, 5]
    output = says(scripted([A, 5, B, C]), greedy(9, stop_token_ids=[B], ignore_eos=True))
    assert (output.token_ids, output.stop_reason, output.text) == ([A, 5, B], B, "a")


def test_no_end_counts_before_min_tokens() -> None:
    output = says(scripted([A, 5, B, 5, C]), greedy(9, min_tokens=3))
    assert (output.token_ids, output.finish_reason) == ([A, 5, B, 5], "stop")


@pytest.mark.parametrize("stop", ["lo w", ["xyz", "lo w"], ("lo", "lo w")])
def test_a_stop_string_ends_the_text_before_it(stop: Any) -> None:
    output = says(scripted("hello world and more"), greedy(20, stop=stop))
    assert (output.text, output.finish_reason) == ("hel", "stop")
    assert output.stop_reason in ("lo w", "lo")


def test_a_stop_string_is_found_in_silence_too() -> None:
    engine = scripted("hello world and more")
    name = engine.add([40, 41], greedy(20, stop="wor"))
    (output,) = engine.run()
    assert (output.request_id, output.outputs[0].text, output.outputs[0].stop_reason) == (name, "hello ", "wor")


def test_a_streamed_text_never_shows_the_beginning_of_a_stop_string() -> None:
    engine = scripted("say stone, then stop it")
    pieces = list(engine.stream(engine.add([40, 41], greedy(30, stop="stop"))))
    assert "".join(pieces) == "say stone, then "
    assert not any(piece.endswith(("s", "st", "sto")) for piece in pieces)


def test_leaving_a_stream_early_aborts_the_request() -> None:
    engine = scripted("a long story without an end")
    name = engine.add([40, 41], greedy(20))
    for piece in engine.stream(name):
        assert piece == "a"
        break
    assert not engine.has_unfinished
    assert engine.result(name).outputs[0].finish_reason == "abort"
    assert used(engine) == 0


def test_a_held_back_beginning_is_shown_when_the_request_ends_otherwise() -> None:
    assert says(scripted("it is st"), greedy(8, stop="stop")).text == "it is st"


def test_samples_of_one_request_come_out_together() -> None:
    engine = scripted("abcdef")
    name = engine.add([40, 41], greedy(3, n=3))
    outputs = engine.run()
    assert [output.request_id for output in outputs] == [name]
    assert [sample.text for sample in outputs[0].outputs] == ["abc"] * 3


@pytest.mark.parametrize(
    ("params", "says_"),
    [
        ({"stop": "x"}, "need a model with a tokenizer"),
        ({"stop_token_ids": [32_000]}, "token id 32000 is out of range"),
        ({"logit_bias": {-1: 1.0}}, "token id in SamplingParams.logit_bias is -1"),
    ],
)
def test_what_cannot_be_honoured_is_refused(params: dict[str, Any], says_: str) -> None:
    engine = simulate()
    with pytest.raises(ValueError, match=says_):
        engine.add([1], SamplingParams(**params))
    assert not engine.has_unfinished


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1), ("temperature", float("nan")), ("temperature", float("inf")), ("top_k", -2),
        ("top_p", 0), ("top_p", 1.1), ("min_p", -0.1), ("repetition_penalty", 0), ("presence_penalty", 3),
        ("frequency_penalty", -3), ("min_tokens", -1), ("min_tokens", 17), ("logprobs", 101),
        ("prompt_logprobs", -1), ("n", 0),
    ],
)  # fmt: skip
def test_parameters_out_of_range_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"SamplingParams.{field} is {value}"):
        SamplingParams(**{field: value})


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty string"):
        SamplingParams(stop=["a", ""])


class Utf8:
    """A tokenizer whose tokens are bytes: one character may take four of them."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return bytes(ids).decode("utf-8", "replace")

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


@pytest.mark.parametrize("text", ["plain", "naïve", "日本語", "a🙂b", "👩‍👩‍👧"])
def test_no_half_character_is_ever_shown(text: str) -> None:
    reader = Detokenizer(Utf8())
    pieces = [reader.add(token) for token in text.encode()] + [reader.finish()]
    assert "".join(pieces) == reader.text == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_that_never_becomes_whole_stays_out() -> None:
    reader = Detokenizer(Utf8())
    pieces = [reader.add(token) for token in "a🙂".encode()[:-1]] + [reader.finish()]
    assert "".join(pieces) == reader.text == "a"


class Words:
    """As SentencePiece: a word's space belongs to its token, and decoding drops the first one of a text."""

    words = ("The", " capital", " is", " Paris", ",", " a", " city")

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return "".join(self.words[token] for token in ids).removeprefix(" ")

    def encode(self, text: str) -> list[int]:
        return [self.words.index(word) for word in text]


def test_the_first_word_keeps_the_space_that_stands_between_it_and_the_prompt() -> None:
    prompt, answer = [0, 1, 2], [3, 4, 5, 6]
    reader = Detokenizer(Words(), context=prompt)
    pieces = [reader.add(token) for token in answer] + [reader.finish()]
    assert "".join(pieces) == reader.text == " Paris, a city"
    assert reader.seen == 4
    assert Words().decode(prompt) + reader.text == Words().decode(prompt + answer)


def test_a_prompt_that_ends_in_half_a_character_is_no_context() -> None:
    smile = list("🙂".encode())
    reader = Detokenizer(Utf8(), context=[*b"ab", *smile[:2]])
    pieces = [reader.add(token) for token in [*smile[2:], *b"cd"]] + [reader.finish()]
    assert "".join(pieces).endswith("cd")


@pytest.mark.parametrize("recorded", [False, True])
def test_a_stop_string_completed_by_the_last_allowed_token_is_a_stop_for_everybody(recorded: bool) -> None:
    engine = scripted("abcdef")
    recorder, metrics = engine.record(), Metrics(engine)
    if not recorded:
        recorder.detach()
    output = says(engine, greedy(4, stop=["cd"]))
    assert (output.text, output.finish_reason, output.stop_reason) == ("ab", "stop", "cd")
    assert metrics.finished == {"stop": 1}
    if recorded:
        told = [event for events in recorder.ticks for event in events]
        assert [event.reason for event in told if event.kind == "finish"] == ["stop"]
        assert "".join(event.text for event in told if event.kind == "text") == "ab"
        assert recorder.at(recorder.last_tick) == engine.snapshot()


def test_a_stop_string_in_front_of_half_a_character_is_found_at_the_limit() -> None:
    reader = Detokenizer(Utf8(), stop=("b",))
    pieces = [reader.add(token) for token in b"a\xc3"]  # a token of "b" and half a character would hold both back
    assert "".join(pieces) == "a"
    reader = Detokenizer(Pairs(), stop=("b",))
    assert [reader.add(0), reader.add(1), reader.finish()] == ["a", "", ""]
    assert (reader.text, reader.stopped) == ("a", "b")


class Pairs(Utf8):
    """Tokens of several bytes: the second one ends in half a character."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return b"".join([b"a", b"b\xc3"][token] for token in ids).decode("utf-8", "replace")


class Stop:
    """Raises `KeyboardInterrupt` at the `at`-th call, or return from a call, in the detokenizer: where a signal is heard."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: Any, event: str, arg: Any) -> None:
        if frame.f_code.co_filename.endswith("detokenizer.py") and event in ("call", "c_return"):
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt


def test_an_interrupt_while_text_is_read_shows_nothing_twice_and_loses_nothing() -> None:
    pieces = ["ab", "cd", "xstop", "y"]
    tokenizer: Any = SimpleNamespace(decode=lambda ids, skip_special_tokens=True: "".join(pieces[i] for i in ids))

    def read(reader: Detokenizer) -> None:
        for token in range(reader.seen, len(pieces)):
            if reader.stopped is None:
                reader.add(token)

    for at in count(1):
        reader, stop, before = Detokenizer(tokenizer, ("stop",)), Stop(at), sys.getprofile()
        sys.setprofile(stop)
        try:
            read(reader)
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(before)
        read(reader)  # the engine goes on with what was not seen
        reader.finish()
        assert (reader.text, reader.stopped) == ("abcdx", "stop"), at
        if stop.left > 0:
            assert at > 30
            return

"""Four ways to share the same memory: what each slot is doing, and what a refusal says."""

import re
from base64 import b64decode

import pytest

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.viz.memory_layout import percents, pieces, refusal, totals
from minivllm.viz.memory_strip import NAMES, MemoryStrip

REQUESTS = [(40, 20), (30, 60), (50, 14), (16, 16), (24, 40), (55, 50), (20, 30), (33, 33)]


@pytest.fixture
def strip():
    return MemoryStrip(REQUESTS, slots=256, longest=128)


def reserving(**changes):
    settings = {"kv_layout": "contiguous", "allocator": "first-fit", "block_size": 1, "max_model_len": 32} | changes
    return Engine(EngineConfig(**settings))


def ask(engine, prompt, output):
    return engine.add(list(range(prompt)), SamplingParams(max_tokens=output, temperature=0))


def test_the_slots_of_an_extent_are_used_promised_or_wasted():
    engine = reserving(num_blocks=64)
    ask(engine, 10, 6)
    engine.step()
    assert pieces(engine.snapshot()) == [
        ("used", 0, 10, "A"),
        ("later", 10, 6, "A"),
        ("never", 16, 16, "A"),
        ("free", 32, 32, ""),
    ]


def test_a_paged_pool_wastes_at_most_its_last_blocks():
    engine = Engine(EngineConfig(block_size=8, num_blocks=8, enable_prefix_caching=False))
    ask(engine, 10, 3)
    engine.step()
    found = pieces(engine.snapshot())
    assert totals(found) == {"used": 10, "later": 3, "never": 3, "hole": 0, "free": 48}
    assert [p.size for p in found if p.kind == "free"] == [8] * 6


def test_a_refusal_names_the_largest_hole_and_free_slots_become_holes():
    engine = reserving(num_blocks=60, reservation="oracle")
    recorder = engine.record()
    for prompt in (16, 16, 16, 16):
        ask(engine, prompt, 8)
    engine.step()
    shown = engine.snapshot()
    turned = refusal(recorder.events_of(1), shown)
    assert (turned.who, turned.need, turned.hole, turned.at, turned.free) == ("C", 24, 12, 48, 12)
    assert pieces(shown, refused=True)[-1] == ("hole", 48, 12, "")


@pytest.mark.parametrize("name", NAMES)
def test_every_slot_is_counted_once_in_every_tick(strip, name):
    strip.goto(30)
    for tick in range(31):
        strip.tick = tick
        row = strip.frames[tick]["rows"][NAMES.index(name)]
        assert sum(row["totals"].values()) == sum(size for _, _, size, _ in row["pieces"]) == 256
        assert sum(strip.shares(name).values()) == 100


def test_paging_is_done_first_and_wastes_least(strip):
    strip.goto(5)
    assert strip.shares("Paged")["used"] > strip.shares("Oracle")["used"] > strip.shares("Max")["used"]
    assert strip.shares("Oracle")["never"] == 0
    strip.goto(10_000)
    ticks = [row["ticks"] for row in strip.frames[-1]["rows"]]
    assert ticks[3] <= ticks[2] <= ticks[0]
    assert strip.sentence.startswith("Same 256 slots, same 8 requests, all done: Max after ")
    assert not strip.has_more and strip.advance() is False


def test_the_sentence_says_who_is_turned_away_and_how_paging_treats_them(strip):
    assert strip.sentence == "Same 256 slots, same 8 requests, four ways to share them."
    strip.step()
    assert strip.sentence == (
        "Same 256 slots, same 8 requests. Max turns C away with 0 slots empty, Pow2 turns D away with 24, "
        "Oracle turns E away with 10. Paged is already running C, D and E."
    )


def test_going_back_keeps_the_recording_and_a_setting_starts_again(strip):
    strip.goto(6)
    strip.back(4)
    assert (strip.tick, strip.edge) == (2, 6)
    strip.handle({"type": "set", "name": "longest", "value": 256})
    assert (strip.error, strip.longest, strip.tick) == ("", 256, 2)
    assert len(strip.engines["Max"].snapshot().running) == 1
    strip.handle({"type": "set", "name": "block_size", "value": 0})
    assert "block_size" in strip.error
    strip.handle({"type": "goto", "tick": 3})
    assert (strip.error, strip.tick) == ("", 3)


def test_a_page_that_loads_later_gets_the_frames_and_then_goes_to_the_playhead(strip, monkeypatch):
    told = []
    strip.goto(3)
    monkeypatch.setattr(MemoryStrip, "send", lambda _, message: told.append((message["type"], message.get("at"))))
    strip.handle({"type": "hello", "have": 2})
    assert told == [("frame", 2), ("frame", 3), ("sync", None), ("done", None)]


def test_a_prediction_is_kept_for_a_strip_that_exists(strip):
    strip.predict("Max", 60, tick=26)
    assert strip.predictions == {"Max": {"percent": 60, "tick": 26}}
    with pytest.raises(ValueError, match="there are Max, Pow2, Oracle, Paged"):
        strip.predict("Min", 1)


def test_percentages_add_up_to_a_hundred():
    assert percents([1, 1, 1]) == [34, 33, 33]
    assert percents([0, 0]) == [0, 0]
    assert percents([209, 141, 162, 48]) == [37, 25, 29, 9]


def test_the_static_picture_is_deterministic_and_to_scale(strip):
    strip.goto(3)
    again = MemoryStrip(REQUESTS, slots=256, longest=128)
    again.goto(3)
    assert again.static() == strip.static()
    plain, html = strip.static()["text/plain"], strip.static()["text/html"]
    strips = re.findall(r"^ +(?:Max|Pow2|Oracle|Paged)  (\S.*)$", plain, re.MULTILINE)
    assert [len(s) for s in strips] == [64] * 4
    picture = b64decode(re.search(r"base64,([^\"]+)", html)[1]).decode()
    assert all(f">{name}<" in picture for name in NAMES)

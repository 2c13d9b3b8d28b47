"""A budget shared out by a function: the engine obeys it, and everything else is as before."""

import pytest

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.lab.budget import engine_with
from minivllm.viz.gantt import chart

CONFIG = EngineConfig(block_size=4, num_blocks=64, max_num_batched_tokens=8, enable_prefix_caching=False)


def in_order(budget, wanted):
    shares = {}
    for who, left in wanted:
        if count := min(left, budget):
            shares[who], budget = count, budget - count
    return shares


def decodes_first(budget, decodes, prompts):
    return in_order(budget, [*((who, 1) for who in decodes), *prompts])


def prompts_first(budget, decodes, prompts):
    return in_order(budget, [*prompts, *((who, 1) for who in decodes)])


def play(engine, late):
    log = engine.record()
    greedy = [SamplingParams(temperature=0, max_tokens=n) for n in (9, 3)]
    engine.add(list(range(5)), greedy[0])
    engine.run(max_steps=2)
    engine.add(list(range(100, 100 + late)), greedy[1])
    texts = {o.request_id: o.outputs[0].token_ids for o in engine.run()}
    assert engine.audit() == []
    return texts, chart(log.ticks)


@pytest.mark.parametrize("late", [1, 7, 8, 9, 40])
def test_the_usual_rule_gives_the_usual_engine(late):
    ours, theirs = play(Engine(CONFIG), late), play(engine_with(decodes_first, CONFIG), late)
    assert ours == theirs


def test_another_rule_changes_who_waits_and_no_text():
    usual, other = play(engine_with(decodes_first, CONFIG), 30), play(engine_with(prompts_first, CONFIG), 30)
    assert usual[0] == other[0]
    assert "-" not in usual[1].rows["A"].marks
    assert other[1].rows["A"].marks.count("-") == 3


def test_a_rule_that_gives_nothing_runs_nothing():
    engine = engine_with(lambda budget, decodes, prompts: {}, CONFIG)
    engine.add([1, 2, 3])
    assert engine.step().num_tokens == 0
    assert engine.has_unfinished

"""Experiments show what they claim, at a size that a test can afford; times are never asserted, work is."""

import json

import pytest

from minivllm.lab import experiments
from minivllm.lab.experiments import fragmentation, hit_rate, paper, shared_prefix
from minivllm.lab.experiments.result import Chart, Result
from minivllm.lab.instruments import explain_miss


def rows_of(result, *columns):
    return list(zip(*(result.column(column) for column in columns), strict=True))


# -- every experiment ----------------------------------------------------------------------------------------------


def test_every_experiment_has_one_line():
    names = experiments.names()
    assert list(names) == [
        "kv-size", "fragmentation", "paper", "shared-prefix", "block-size", "cache-size", "policy", "hit-rate",
        "preemption",
    ]  # fmt: skip
    assert all(line and "\n" not in line for line in names.values())


def test_what_there_is_not_is_refused_with_what_there_is():
    with pytest.raises(ValueError, match="kv-size, fragmentation, paper"):
        experiments.run("papers")
    with pytest.raises(ValueError, match="no option blocks; it has tokens, dtype_bytes"):
        experiments.run("kv-size", blocks=3)
    with pytest.raises(ValueError, match="no option model"):
        experiments.run("kv-size", model="some/model")


def test_a_result_is_signed_and_written_as_json(tmp_path):
    result = experiments.run("kv-size", tmp_path / "out.json", model=None, device="auto")
    saved = json.loads((tmp_path / "out.json").read_text())
    assert saved["signed"]["command"] == "python -m minivllm experiment kv-size"
    assert saved["signed"]["seed"] is None
    assert {"python", "minivllm", "torch"} <= set(saved["signed"]["versions"])
    assert saved["signed"]["machine"]
    assert saved["rows"] == [list(row) for row in result.rows]


def test_a_result_with_options_of_its_own_is_signed_with_the_call_that_made_it():
    signed = experiments.run("hit-rate", requests=2, system=64).signed
    assert signed["command"] == "minivllm.lab.experiments.run('hit-rate', requests=2, system=64)"
    assert signed["seed"] == 0


def test_a_table_is_aligned_and_says_what_it_claims():
    result = Result("Title", "it is so", ("name", "n"), [("a", 1), ("long name", 20_000)], ["a note"])
    assert result.to_text().splitlines() == [
        "Title", "claim: it is so", "", "name            n", "---------  ------", "a               1",
        "long name  20,000", "", "* a note",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="there are name, n"):
        result.column("m")
    with pytest.raises(ValueError, match="table only"):
        result.figure()


def test_a_figure_is_transparent_and_has_a_trace_per_group():
    rows = [(1, 2.0, "a"), (2, 3.0, "a"), (1, 5.0, "b")]
    result = Result("T", "c", ("x", "y", "who"), rows, [], Chart("bar", "x", ("y",), "who"))
    figure = result.figure()
    assert [(trace.name, tuple(trace.y)) for trace in figure.data] == [("a", (2.0, 3.0)), ("b", (5.0,))]
    assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"


# -- A1 ------------------------------------------------------------------------------------------------------------


def test_a_7b_sequence_of_2048_tokens_takes_a_gibibyte_and_a_quarter_with_gqa():
    table = {row[0]: row for row in experiments.run("kv-size").rows}
    assert table["7B (Llama-2)"][2:6] == (524_288, 524_288, 1.0, 1.0)
    assert table["7B with GQA (Mistral)"][2:6] == (524_288, 131_072, 1.0, 0.25)
    assert table["OPT-13B"][3] == 800 * 1024
    assert table["SmolLM2-135M"][3] == 23_040
    assert table["Qwen3-0.6B"][3] == 114_688


# -- A5, A6 --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tight():
    """A small setting in a tight pool: 24 requests, 6 seats, 1,024 tokens."""
    import random

    asked = fragmentation.Setting(24, (16, 200), (8, 40), 6, 256, 1024)
    rng = random.Random(0)
    calls = [(rng.randint(*asked.prompt), rng.randint(*asked.output)) for _ in range(asked.requests)]
    return {name: fragmentation.simulate(asked, calls, 16, options) for name, options in fragmentation.LAYOUTS.items()}


def test_paging_uses_what_it_holds_and_refuses_nobody_for_a_hole(tight):
    used = {name: row[3] for name, row in tight.items()}
    assert used["paged"] > 93
    assert max(share for name, share in used.items() if name != "paged") < 85
    assert tight["paged"][6] == 0
    assert tight["oracle, first-fit"][6] > 0  # free in all, but not in one piece


def test_paging_batches_most_and_finishes_first(tight):
    assert tight["paged"][4] > max(row[4] for name, row in tight.items() if name != "paged")
    assert tight["paged"][7] < min(row[7] for name, row in tight.items() if name != "paged")


# -- the vLLM paper ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def figures():
    return experiments.run("paper", scale=0.1)


@pytest.mark.parametrize("trace", ["ShareGPT", "Alpaca"])
def test_every_column_of_the_paper_keeps_its_order(figures, trace):
    rows = [row for row in rows_of(figures, "trace", "batched", "used %") if row[0] == trace]
    assert [row[1:] for row in rows] == sorted(row[1:] for row in rows)
    batched, used = zip(*(row[1:] for row in rows), strict=True)
    assert list(batched) == sorted(batched)
    assert list(used) == sorted(used)


def test_orca_max_batches_the_seven_extents_that_fit(figures):
    maximum = [row for row in rows_of(figures, "system", "batched", "external %") if row[0] == "Orca (Max)"]
    for _, batched, external in maximum:
        assert 6.5 < batched <= 7
        assert external == pytest.approx(8.9, abs=2)


def test_batches_of_the_orca_rows_are_near_the_published_ones(figures):
    for system, ours, published in rows_of(figures, "system", "batched", "paper batched"):
        if system != "vLLM":
            assert ours == pytest.approx(published, rel=0.25)


def test_all_kinds_of_use_add_up(figures):
    kinds = ("used %", "reserved %", "internal %", "external %", "free %")
    assert all(sum(row) == pytest.approx(100) for row in rows_of(figures, *kinds))


def test_the_lengths_have_the_published_means():
    for traffic in paper.TRAFFIC.values():
        calls = paper.arrivals(traffic, traffic.requests, seed=3)
        for at, (mean, _) in ((1, traffic.input), (2, traffic.output)):
            assert sum(call[at] for call in calls) / len(calls) == pytest.approx(mean, rel=0.03)
        assert max(call[1] + call[2] for call in calls) <= paper.LONGEST


# -- A13, A14, A15, A16, preemption --------------------------------------------------------------------------------


def test_utilisation_falls_as_blocks_grow_and_tables_shrink():
    result = experiments.run("block-size", workload="batch", sizes=(1, 32, 128), context=64, batch=2, device="cpu")
    rows = rows_of(result, "used % of held", "mean table", "hit rate %")
    for column in zip(*rows, strict=True):
        assert list(column) == sorted(column, reverse=True)
    assert rows[0][0] > 99.9  # only prompts under way hold empty blocks
    assert result.column("empty of 130") == [0, 30, 126]


def test_a_larger_pool_hits_more_and_evicts_less():
    result = experiments.run("cache-size", blocks=(160, 640), evictions=("lru",))
    small, large = rows_of(result, "hit rate %", "evictions", "evicted too soon")
    assert small[0] < large[0] - 10
    assert small[2] > 100
    assert large[1:] == (0, 0)


def test_affinity_hits_most_where_prefixes_do_not_all_fit():
    result = experiments.run("policy", workloads=("batch",))
    hits = {row[0]: row[2] for row in rows_of(result, "policy", "steps", "hit rate %") if row[1] == "mixed"}
    assert max(hits, key=hits.__getitem__) == "longest-prefix"
    assert hits["longest-prefix"] > hits["fcfs"] + 10
    assert len(result.rows) == 8


def test_a_clock_in_front_costs_every_hit_and_behind_none():
    result = experiments.run("hit-rate", requests=40)
    rates = dict(rows_of(result, "the clock stands", "hit rate %"))
    assert rates["at the very beginning"] == 0
    assert rates["no clock"] > 90
    assert rates["after the question"] > 90
    assert dict(rows_of(result, "the clock stands", "first miss: block"))["after 10 blocks"] == 10
    with pytest.raises(ValueError, match="system is 10; allowed: 24 or more"):
        hit_rate.run(system=10)


def test_six_requests_in_eight_blocks_preempt_and_recompute():
    result = experiments.run("preemption", blocks=(8, 30), watermark=0.0)
    small, large = rows_of(result, "steps", "preemptions", "tokens computed")
    assert small == (48, 9, 155)
    assert large == (16, 0, 114)


# -- on a real (tiny) model -------------------------------------------------------------------------------


def test_a_warm_prefix_computes_only_the_tail_and_decodes_as_before(monkeypatch):
    from minivllm.lab.faults.tiny import tiny_model

    monkeypatch.setattr("minivllm.llm.load", lambda *args, **kwargs: tiny_model())
    result = shared_prefix.run(device="cpu", system=96, question=10, output=4, concurrency=(1, 3))
    rows = rows_of(result, "concurrency", "cache", "tokens computed", "prompt tokens hit")
    assert rows == [(1, "cold", 109, 0), (1, "warm", 13, 96), (3, "cold", 327, 0), (3, "warm", 39, 288)]


# -- explain_miss --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agreed", range(6))
def test_the_first_block_that_differs_is_always_among_the_lines(agreed):
    base = list(range(40))
    other = [*base[: 4 * agreed + 1], 99, *base[4 * agreed + 2 :]]
    lines = [line.strip() for line in str(explain_miss(base, other, 4)).splitlines()]
    assert any(line.startswith(f"block   {agreed} ") and "≠" in line for line in lines)
    assert sum(" = " in line for line in lines) == min(agreed, 3)


@pytest.mark.parametrize(("index", "block"), [(0, 0), (15, 0), (16, 1), (100, 6), (159, 9)])
def test_the_first_mismatch_is_named_by_block_and_token(index, block):
    base = list(range(1000, 1160))
    other = base.copy()
    other[index] = 7
    miss = explain_miss(base, other, 16)
    assert (miss.block, miss.index, miss.tokens) == (block, index, (1000 + index, 7))
    a, b = miss.hashes
    assert a[:block] == b[:block]
    assert all(x != y for x, y in zip(a[block:], b[block:], strict=True))


def test_ten_blocks_agree_and_the_eleventh_differs():
    base = list(range(200))
    text = str(explain_miss(base, [*base[:165], 7, *base[166:]], 16))
    assert text.splitlines()[0] == "10 full blocks of 16 tokens agree"
    assert "first different token: index 165, in block 10: 165 ≠ 7" in text
    assert sum("≠" in line and "block" in line and "index" not in line for line in text.splitlines()) == 2


def test_a_prompt_that_goes_on_differs_in_no_token():
    miss = explain_miss([1, 2, 3, 4], [1, 2, 3, 4, 5], 2)
    assert (miss.block, miss.index) == (None, None)
    assert str(miss).endswith("no token differs: one prompt is the beginning of the other")


class Letters:
    """A tokenizer of single characters."""

    def encode(self, text):
        return [ord(c) for c in text]

    def decode(self, ids):
        return "".join(map(chr, ids))


def test_with_a_tokenizer_the_text_around_the_place_is_shown():
    miss = explain_miss("Now 12:30. You are kind.", "Now 12:31. You are kind.", 4, Letters())
    assert miss.index == 8
    assert miss.around == ("'w 12:3' → '0. You'", "'w 12:3' → '1. You'")
    with pytest.raises(ValueError, match="tokenizer"):
        explain_miss("a", "b", 4)
    with pytest.raises(ValueError, match="block_size is 0"):
        explain_miss([1], [1], 0)

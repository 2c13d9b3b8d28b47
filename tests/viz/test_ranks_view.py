"""The ranks by hand: which heads each holds, what a token costs it, how many tokens fit."""

import re
from base64 import b64decode

import pytest

from minivllm.viz import RanksView

QWEN = {"layers": 28, "q_heads": 16, "kv_heads": 8, "head_dim": 128, "hidden": 1024, "weights": 1.2e9, "memory": 2.4e9}


def make(**more):
    return RanksView(**{**QWEN, **more})


def held(view):
    (cut,) = [cut for cut in view.picture["cuts"] if cut["ranks"] == view.ranks]
    return cut["heads"]


@pytest.mark.parametrize(("ranks", "size"), [(1, 114_688), (2, 57_344), (4, 28_672), (8, 14_336), (16, 14_336)])
def test_a_token_costs_a_rank_the_k_and_v_of_its_own_heads(ranks, size):
    view = make(ranks=ranks)
    assert view.kv_bytes == size
    assert view.pool_tokens == int((2.4e9 - 1.2e9 / ranks) / size)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16])
def test_every_query_head_lies_on_one_rank_beside_the_kv_head_it_reads(ranks):
    ranked = held(make(ranks=ranks))
    assert len(ranked) == ranks
    assert [q for groups in ranked for _, queries, _ in groups for q in queries] == list(range(16))
    assert all(q // 2 == kv for groups in ranked for kv, queries, _ in groups for q in queries)
    first = [kv for groups in ranked for kv, _, copy in groups if not copy]
    assert first == list(range(8))
    assert sum(copy for groups in ranked for _, _, copy in groups) == max(0, ranks - 8)


def test_the_sentence_says_what_a_rank_holds_and_what_the_pool_gains():
    view = make(ranks=2)
    assert view.sentence == (
        "Each rank holds 8 query heads and 4 KV heads: 57,344 bytes of K and V per token. Beside the weights there is "
        "room for 31,389 tokens, 3.0 times as many as one GPU."
    )
    view.ranks = 16
    assert view.sentence.endswith(
        "A head cannot be cut, so each KV head lies on two ranks: more ranks than 8 make a token no cheaper."
    )
    view = make(memory=1e9)
    assert view.sentence.endswith("The weights, 1.20 GB, leave no room for any.")
    assert view.pool_tokens == 0
    view.ranks = 2
    assert "times as many" not in view.sentence


def test_only_numbers_of_ranks_that_the_heads_allow_can_be_chosen():
    view = make(q_heads=12, kv_heads=4)
    assert [cut["ranks"] for cut in view.picture["cuts"]] == [1, 2, 4]
    with pytest.raises(ValueError, match="ranks is 3; allowed: 1, 2, 4"):
        view.ranks = 3
    assert view.ranks == 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"layers": 0}, "layers is 0; allowed: a whole number of 1 or more"),
        ({"q_heads": 12}, "q_heads is 12; allowed: a multiple of the 8 KV heads"),
        ({"weights": 0}, "weights is 0; allowed: a number above 0"),
        ({"memory": "80 GB"}, "memory is '80 GB'; allowed: a number above 0"),
        ({"ranks": 32}, "ranks is 32; allowed: 1, 2, 4, 8, 16"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(wrong, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        make(**wrong)


def test_the_snapshot_is_deterministic_marks_copies_and_escapes_the_title():
    view = make(ranks=16, title="<b>Qwen</b>")
    plain, html = view.static().values()
    assert plain.startswith(f"16 ranks. {view.sentence}\n")
    assert "rank 1   q heads 1        KV 0*" in plain
    svg = b64decode(re.search(r"base64,([^\"]+)", html)[1]).decode()
    assert svg.count(", a copy") == 8
    assert "<b>" not in svg
    assert view.static() == view.static()
    assert repr(view) == "RanksView(16 ranks, 14,336 bytes per token on each)"

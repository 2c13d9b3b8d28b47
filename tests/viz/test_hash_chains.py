"""Two prompts under their block hashes: what the picture calls a hit is what a real engine takes from its cache."""

import re
from base64 import b64decode
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.core.hashing import chain
from minivllm.lab.misses import explain_miss
from minivllm.viz import HashChains, bundle
from minivllm.viz.chain_rows import VOCABULARY, Pair, tokens_alone
from minivllm.viz.words import Words

SYSTEM = "You are a careful assistant for Acme . Time : {} . Answer in one short sentence and cite your source . User :"
A = f"{SYSTEM.format('14:07')} Is my order late".split()
B = f"{SYSTEM.format('14:08')} Where is my parcel".split()
ASK = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)

words = st.lists(st.sampled_from("abc"), min_size=1, max_size=20)
sizes = st.sampled_from((2, 4, 8))


@pytest.fixture
def chains():
    return HashChains(A, B, movable="14:08")


def ids(prompt):
    return Words(None, VOCABULARY).encode(" ".join(prompt))


def serve(engine, *prompts):
    """Run the prompts one after the other; what each found in the cache, in tokens."""
    found = []
    for prompt in prompts:
        request = engine.add(ids(prompt), ASK)
        results = engine.run()
        found.append(next(r for r in results if r.request_id == request).num_cached_tokens)
    return found


def states(pair):
    return [row.state for row in pair.rows]


def test_the_ids_of_the_words_are_those_of_a_simulated_engine():
    assert Engine(EngineConfig()).runner.vocab_size == VOCABULARY


def test_one_timestamp_breaks_every_hash_behind_it(chains):
    assert (chains.hits, chains.first_mismatch) == (2, (10, 2))
    assert chains.sentence == (
        "The two prompts part at token 10, a timestamp. Blocks 3, 4 and 5 hold the same words in both and still miss: "
        "each hash contains the one before it."
    )
    assert states(chains.pair) == ["hit", "hit", "first", "after", "after", "after", "after"]
    assert repr(chains) == "HashChains(block_size 4, hash of parent hash + tokens: 2 of 7 blocks hit)"


def test_the_names_shown_begin_the_engines_own_hashes(chains):
    for side, prompt in enumerate((A, B)):
        assert [row.names[side] for row in chains.pair.rows] == [name.hex()[:4] for name in chain(ids(prompt), 4)]
    miss = explain_miss(ids(A), ids(B), 4)
    assert chains.first_mismatch == (miss.index, miss.block)


@settings(max_examples=60, deadline=None)
@given(words, words, st.integers(0, 20), sizes)
def test_hits_are_what_a_real_engine_takes_from_its_cache(a, b, same, size):
    b = a[:same] + b
    engine = Engine(EngineConfig(block_size=size, num_blocks=64))
    assert Pair(a, b, size).hits == serve(engine, a, b)[1] // size


@settings(max_examples=60, deadline=None)
@given(words, words, sizes)
def test_tokens_alone_match_wherever_the_words_do(a, b, size):
    pair = Pair(a, b, size, chained=False)
    assert Pair(a, b, size).hits + pair.wrong == pair.hits
    for row in pair.rows:
        if None not in row.names:
            assert (row.names[0] == row.names[1]) == (not row.differ)


def test_a_real_engine_without_the_parents_hash_reads_on_into_blocks_of_another_past(chains):
    chains.set("chained", False)
    assert (chains.hits, chains.pair.wrong, chains.first_mismatch) == (5, 3, (10, 2))
    assert "That is wrong: B would read K and V computed after 14:07." in chains.sentence
    # another prompt that leaves "Time : 14:08 ." behind is all it takes, as the picture says
    config = EngineConfig(block_size=4, num_blocks=64, verify_prefix_hits=False)
    found = serve(Engine(config, hasher=tokens_alone), A, [*B[8:12], "!"], B)
    assert found[2] // 4 == chains.hits + 1


def test_choosing_compares_anew_and_refuses_what_it_cannot_show(chains):
    chains.set("block_size", 8)
    assert (chains.block_size, chains.hits, chains.edge) == (8, 1, 3)
    chains.set("block_size", 2)
    assert "Blocks 6 to 11 hold the same words in both and still miss" in chains.sentence
    with pytest.raises(ValueError, match="block_size is 3; allowed: 2, 4, 8"):
        chains.set("block_size", 3)
    with pytest.raises(ValueError, match="chained is 'no'; allowed: True, False"):
        chains.set("chained", "no")
    with pytest.raises(ValueError, match="it can be chained, block_size, place"):
        chains.set("colour", 1)
    with pytest.raises(ValueError, match=r"it can be chained, block_size$"):
        HashChains(A, B).place(1)
    assert chains.block_size == 2


def test_every_block_before_the_moved_word_can_be_shared_and_none_behind_it(chains):
    told = chains.picture["move"]["hits"]
    assert told == [0, 1, 2, 3, 4, 5, 5]  # in the last block the questions differ first
    for block, hits in enumerate(told):
        chains.place(block)
        engine = Engine(EngineConfig(block_size=4, num_blocks=64))
        assert chains.hits == hits == serve(engine, *chains.pair.words)[1] // 4
        assert chains.picture["move"]["block"] == block
    chains.place(2)
    assert [list(words) for words in chains.pair.words] == [A, B]
    with pytest.raises(ValueError, match="place is 7; allowed: a whole number from 0 to 6"):
        chains.place(7)


def test_the_moved_word_stays_where_it_is_when_blocks_change_size(chains):
    chains.place(5)
    before = chains.pair.words
    chains.set("block_size", 8)
    assert chains.pair.words == before
    assert chains.picture["move"]["block"] == 2


def test_only_a_word_that_differs_at_its_index_can_be_moved():
    with pytest.raises(ValueError, match=r"movable is 'Acme'; allowed: .*'14:08', 'Where'"):
        HashChains(A, B, movable="Acme")


def test_equal_prompts_hit_except_for_the_block_of_the_last_token():
    pair = Pair(A, A, 4)
    assert (pair.hits, states(pair)[-1], pair.miss.index) == (6, "last", None)
    assert "The last token is always computed, so block 6, which holds it, is not reused." in pair.say()[0]
    longer = Pair([*A, "?"], [*A, "?"], 4)
    assert (longer.hits, states(longer)[-1]) == (7, "open")
    assert longer.notes()[-1]["words"] == "not full: no hash yet"


def test_prompts_of_unequal_length_are_shown_to_the_end_of_the_longer_one():
    shorter, longer = Pair(A[:10], A, 4), Pair(A, A[:10], 4)
    assert (shorter.hits, len(shorter.rows), longer.hits, len(longer.rows)) == (2, 7, 2, 7)
    assert shorter.say()[0].startswith("A is the beginning of B")
    assert longer.say()[0].startswith("B is the beginning of A")
    assert [n["words"] for n in shorter.notes()][1:] == ["A's is not full: no hash yet", "A has ended: nothing to hit"]
    assert [n["words"] for n in longer.notes()][1:] == ["B's is not full: no hash yet", "B has ended"]


def test_a_prompt_without_a_full_block_has_no_hash():
    short = HashChains(A, B[:3])
    assert (short.hits, short.pair.headline, short.first_mismatch) == (0, "No full block", None)
    assert "no hash, so nothing to hit" in short.sentence
    assert "it left nothing to hit" in HashChains(A[:3], B).sentence


@pytest.mark.parametrize("prompt", [[], "one text", ["two words"], [""], [7], ["\x00"]])
def test_a_prompt_that_is_no_list_of_words_is_refused(prompt):
    with pytest.raises(ValueError, match="allowed: a list of words"):
        HashChains(prompt, B)


@settings(max_examples=60, deadline=None)
@given(words, words, sizes, st.booleans())
def test_every_row_has_one_note_and_every_pair_a_sentence(a, b, size, chained):
    view = HashChains(a, b, block_size=size, chained=chained)
    covered = [k for note in view.picture["notes"] for k in range(note["first"], note["last"] + 1)]
    assert covered == list(range(len(view.pair.rows)))
    assert all(m["words"] != n["words"] for m, n in pairwise(view.picture["notes"]))
    assert view.sentence.endswith(".") and "  " not in view.sentence


def test_the_rows_are_walked_like_ticks_and_messages_that_fail_are_told(chains):
    chains.goto(100)
    assert chains.tick == chains.edge == 6
    chains.handle({"type": "set", "name": "block_size", "value": 8})
    assert (chains.error, chains.tick) == ("", 3)
    chains.handle({"type": "set", "name": "block_size", "value": 5})
    assert chains.error == "ValueError: block_size is 5; allowed: 2, 4, 8"
    chains.handle({"type": "set", "name": "chained", "value": False})
    assert (chains.error, chains.chained) == ("", False)


def test_the_static_picture_is_deterministic_and_escapes_its_words(chains):
    assert HashChains(A, B, movable="14:08").static() == chains.static()
    plain, html = chains.static().values()
    assert [line.split()[2] for line in plain.splitlines()[1:]] == ["=", "=", *"≠≠≠≠≠"]
    assert plain.splitlines()[3].endswith("! Time : 14:07 . | Time : 14:08 .")
    assert 'alt="2 of 7 blocks hit. The two prompts part at token 10' in html
    odd = HashChains(["<b>", "&", '"', "x"], ["<b>", "&", "'", "x"])
    svg = b64decode(re.search(r"base64,([^\"]+)", odd.static()["text/html"])[1]).decode()
    assert "&lt;b&gt;" in svg and "<b>" not in svg


def test_text_reaches_the_page_only_as_text():
    module = bundle.module("hash_chains")
    assert set(re.findall(r"\.innerHTML = ([^;]+);", module)) <= {'GLYPHS[kind] || ""', "GLYPHS[kind]"}
    assert module.count("export default") == 1
    assert set(re.findall(r"https?://[\w./]+", module)) <= {"http://www.w3.org/2000/svg"}

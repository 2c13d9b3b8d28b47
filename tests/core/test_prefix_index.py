"""hash -> blocks and back: an entry lives and dies with its own block, and a doubtful match is looked at."""

from hypothesis import given
from hypothesis import strategies as st

from minivllm.core.prefix_index import Content, PrefixIndex


def test_matching_stops_at_the_first_miss() -> None:
    index = PrefixIndex()
    for block, name in enumerate([b"a", b"b", b"d"]):
        index.publish(block, name)
    assert index.match([b"a", b"b", b"c", b"d"]) == [0, 1]
    assert index.match([b"x", b"a"]) == []


def test_a_hash_may_have_several_blocks_and_loses_them_one_by_one() -> None:
    index = PrefixIndex()
    index.publish(3, b"a")
    index.publish(5, b"a")
    assert index.match([b"a"]) == [3]
    assert index.forget(3) == b"a"
    assert index.match([b"a"]) == [5]
    assert index.forget(5) == b"a"
    assert index.match([b"a"]) == []
    assert index.blocks == {}
    assert index.forget(5) is None


def test_publishing_twice_changes_nothing() -> None:
    index = PrefixIndex()
    index.publish(1, b"a")
    index.publish(1, b"a")
    assert len(index) == 1
    assert index.blocks == {b"a": {1: None}}


def test_verified_matches_compare_tokens_extra_keys_and_the_whole_past() -> None:
    index = PrefixIndex(verify=True)
    first = Content(None, (1, 2), ())
    index.publish(0, b"same", first)
    index.publish(1, b"same", Content(first, (3, 4), ()))
    index.publish(2, b"same", Content(None, (1, 2), (("salt", "x"),)))
    assert index.match([b"same"] * 2, [1, 2, 3, 4], 2) == [0, 1]
    assert index.match([b"same"] * 2, [3, 4, 3, 4], 2) == []  # block 1 holds 3, 4, but after 1, 2
    assert index.match([b"same"] * 2, [1, 2, 9, 9], 2) == [0]
    assert index.match([b"same"], [1, 2], 2, (("salt", "x"),)) == [2]
    assert index.match([b"same"], [1, 2], 2, (("salt", "y"),)) == []


def test_verifying_a_chain_of_10_000_blocks_neither_recurses_nor_crawls() -> None:
    index, past = PrefixIndex(verify=True), None
    for block in range(10_000):
        past = Content(past, (block,), ())
        index.publish(block, b"%d" % block, past)
    assert len(index.match([b"%d" % block for block in range(10_000)], range(10_000), 1)) == 10_000


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.sampled_from([b"a", b"b", b"c"])), max_size=40))
def test_both_directions_always_agree(life: list[tuple[bool, int, bytes]]) -> None:
    index, model = PrefixIndex(), {}
    for publish, block, name in life:
        if not publish:
            assert index.forget(block) == model.pop(block, None)
        elif block not in model:
            index.publish(block, name)
            model[block] = name
        assert index.hash_of == model
        assert {(b, n) for n, blocks in index.blocks.items() for b in blocks} == set(model.items())
        assert all(index.blocks.values())

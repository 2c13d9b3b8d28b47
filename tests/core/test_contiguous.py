"""The baseline: extents found by buddy or first fit, compared with a bitmap; reservations, and holes of no use."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm.core.contiguous import Buddy, ContiguousManager, FirstFit
from minivllm.request import Request, SamplingParams

LIFE = st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=40)


@pytest.mark.parametrize("kind", [Buddy, FirstFit])
@given(st.integers(1, 40), LIFE)
def test_extents_never_overlap_and_free_space_is_what_a_bitmap_says(kind: Any, size: int, life: list) -> None:
    allocator, bitmap, held = kind(size), [False] * size, []
    for allocate, number in life:
        if allocate:
            extent = allocator.allocate(number)
            want = number if kind is FirstFit else 1 << (number - 1).bit_length()
            if extent is None:
                assert all(length < want for _, length in allocator.holes())
            else:
                base, length = extent
                assert length == want
                assert not any(bitmap[base : base + length])
                bitmap[base : base + length] = [True] * length
                held.append(extent)
        elif held:
            base, length = held.pop(number % len(held))
            allocator.free(base, length)
            bitmap[base : base + length] = [False] * length
        free = [b for base, length in allocator.holes() for b in range(base, base + length)]
        assert free == [b for b in range(size) if not bitmap[b]]
    fresh = kind(size).holes()
    for base, length in held:
        allocator.free(base, length)
    assert allocator.holes() == fresh  # everything merges again


def test_first_fit_takes_the_first_hole_that_is_long_enough() -> None:
    allocator = FirstFit(10)
    for size in (2, 3, 5):
        allocator.allocate(size)
    allocator.free(0, 2)
    allocator.free(5, 5)
    assert allocator.allocate(3) == (5, 3)
    assert allocator.allocate(2) == (0, 2)


def test_a_buddy_pool_that_is_no_power_of_two_starts_as_several() -> None:
    assert Buddy(24).holes() == [(0, 16), (16, 8)]
    assert Buddy(7).holes() == [(0, 4), (4, 2), (6, 1)]


def request(name: str, prompt: int, output: int | None) -> Request:
    return Request(name, list(range(prompt)), SamplingParams(max_tokens=output), limit=100)


@pytest.mark.parametrize(
    ("rule", "output", "tokens"),
    [("max", 10, 64), ("pow2", 10, 36), ("oracle", 10, 30), ("pow2", 40, 64), ("oracle", None, 64)],
)
def test_each_reservation_rule_reserves_what_the_paper_says(rule: str, output: int | None, tokens: int) -> None:
    manager = ContiguousManager(64, 4, reservation=rule, max_model_len=64)
    asker = request("A", 20, output)
    assert manager.reserved(asker) == manager.capacity(asker) == tokens
    assert manager.open(asker) is None
    assert asker.table == list(range(-(-tokens // 4)))


def test_memory_can_be_free_and_of_no_use() -> None:
    manager = ContiguousManager(12, 1, reservation="oracle", allocator=FirstFit(12), max_model_len=64)
    a, b, c = (request(name, 3, 1) for name in "ABC")
    for asker in (a, b, c):
        assert manager.open(asker) is None
    manager.close(a)
    manager.close(c)
    big = request("D", 4, 2)
    short = manager.open(big)
    assert short is not None
    assert (short.reason, short.need, short.available) == ("hole", 6, 4)
    assert big.table == []
    manager.close(b)
    assert manager.open(big) is None


def test_a_reservation_no_extent_can_hold_has_no_capacity() -> None:
    manager = ContiguousManager(24, 4, reservation="max", max_model_len=65)  # 17 blocks; the largest extent has 16
    assert manager.capacity(request("A", 5, 5)) == 0


def test_an_extent_is_not_shared_grown_or_forked() -> None:
    manager = ContiguousManager(16, 4, max_model_len=16)
    asker = request("A", 5, 5)
    manager.open(asker)
    growth = manager.grow(asker, 9)
    assert (growth.blocks, growth.copies) == ([], []) if growth else False
    assert manager.match(asker) == []
    assert manager.fork(asker, request("B", 5, 5)) is False
    assert manager.reset() is None
    manager.close(asker)
    manager.close(asker)  # closing twice is harmless
    assert manager.reset() == ()

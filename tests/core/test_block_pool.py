"""Reference counts and the free queue: who may be taken, in which order, at what cost."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm.core.block_pool import BlockPool
from minivllm.core.eviction import FIFO, LRU


def test_blocks_that_hold_nothing_go_before_cached_ones() -> None:
    pool = BlockPool(3)
    a, b, c = (pool.take() for _ in range(3))
    pool.release(a, keep=True)
    pool.release(c, keep=False)
    pool.release(b, keep=True)
    assert list(pool) == [c, a, b]
    assert [pool.take() for _ in range(3)] == [c, a, b]


def test_a_hit_leaves_the_queue_before_anybody_can_take_it() -> None:
    pool = BlockPool(2)
    for block in (pool.take(), pool.take()):
        pool.release(block, keep=True)
    pool.share(0)
    assert list(pool) == [1]
    assert pool.take() == 1
    with pytest.raises(RuntimeError, match="all 2 are referenced"):
        pool.take()


def test_a_shared_block_is_free_only_when_the_last_one_lets_go() -> None:
    pool = BlockPool(1)
    block = pool.take()
    pool.share(block)
    pool.release(block, keep=False)
    assert pool.available == 0
    pool.release(block, keep=False)
    assert pool.available == 1


def test_a_double_free_is_an_error_and_changes_nothing() -> None:
    pool = BlockPool(2)
    pool.release(pool.take(), keep=False)
    for block in (0, 1):
        with pytest.raises(RuntimeError, match=f"double free: block {block}"):
            pool.release(block, keep=False)
    assert sorted(pool) == [0, 1]


def test_evicting_makes_a_cached_block_worthless_and_last_in_line() -> None:
    pool = BlockPool(3)
    for block in [pool.take() for _ in range(2)]:
        pool.release(block, keep=True)
    assert pool.evict() == 0
    assert list(pool) == [2, 0, 1]


class Counted:
    """An eviction order that counts how often it is asked, and refuses to be walked through."""

    def __init__(self) -> None:
        self.order, self.calls = LRU(), 0

    def insert(self, block: int) -> None:
        self.calls += 1
        self.order.insert(block)

    def remove(self, block: int) -> None:
        self.calls += 1
        self.order.remove(block)

    def pop(self) -> int:
        self.calls += 1
        return self.order.pop()

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("somebody walked through the whole queue")


@pytest.mark.parametrize("size", [10, 10_000])
def test_take_share_and_release_cost_the_same_in_any_pool(size: int) -> None:
    order = Counted()
    pool = BlockPool(size, order)
    for block in [pool.take() for _ in range(size)]:
        pool.release(block, keep=True)
    costs = []
    for act in (lambda: pool.share(size // 2), lambda: pool.release(size // 2, keep=True), pool.take):
        before = order.calls
        act()
        costs.append(order.calls - before)
    assert costs == [1, 1, 1]


@pytest.mark.parametrize("order", [LRU, FIFO])
@given(st.lists(st.tuples(st.sampled_from(["take", "share", "release", "evict"]), st.integers(0, 7)), max_size=60))
def test_no_block_is_ever_lost_or_doubled(order: type, life: list[tuple[str, int]]) -> None:
    pool, hashed = BlockPool(5, order()), set()
    for act, which in life:
        block = which % 5
        if act == "take" and pool.available:
            hashed.discard(pool.take())
        elif act == "share" and (pool.ref[block] or block in hashed):
            pool.share(block)
        elif act == "release" and pool.ref[block]:
            hashed |= {block} if which > 4 else set()
            pool.release(block, keep=block in hashed)
        elif act == "evict" and len(pool.cached):
            hashed.discard(pool.evict())
        queue = list(pool)
        assert sorted(queue) == [b for b in range(5) if pool.ref[b] == 0]
        assert pool.available == len(queue)

"""Block tables: admission as one transaction, growth by position, copy-on-write, release in reverse."""

from typing import Any

import pytest

from minivllm.core.kv_manager import KVManager
from minivllm.events import Bus, Event
from minivllm.request import Request, SamplingParams


def request(name: str, tokens: Any) -> Request:
    return Request(name, list(tokens), SamplingParams(), limit=1_000)


def computed(manager: KVManager, asker: Request) -> Request:
    """Opens a request, and behaves as if a step had computed all its tokens."""
    assert manager.open(asker) is None
    asker.num_computed = asker.num_scheduled = len(asker.tokens)
    manager.publish(asker)
    return asker


def test_a_hit_is_never_evicted_by_its_own_admission() -> None:
    manager = KVManager(3, 4)
    manager.close(computed(manager, request("A", range(12))))  # all three blocks are cached now
    longer = request("B", range(12))
    assert manager.open(longer) is None
    assert longer.num_computed == 8
    assert longer.table[:2] == [0, 1]
    assert len(set(longer.table)) == 3


def test_an_admission_that_does_not_fit_changes_nothing() -> None:
    manager = KVManager(4, 4)
    manager.close(computed(manager, request("A", range(8))))
    computed(manager, request("B", range(100, 108)))
    before = (list(manager.pool.ref), list(manager.pool), dict(manager.index.hash_of))
    longer = request("C", range(13))  # 2 hits with ref 0 and 2 new blocks: 4 of the 2 that are left
    short = manager.open(longer)
    assert short is not None
    assert (short.need, short.available, short.reason) == (4, 2, "memory")
    assert (list(manager.pool.ref), list(manager.pool), dict(manager.index.hash_of)) == before
    assert longer.table == []


def test_hits_that_others_hold_cost_nothing() -> None:
    manager = KVManager(3, 4)
    computed(manager, request("A", range(8)))
    twin = request("B", range(9))
    assert manager.open(twin) is None
    assert [manager.pool.ref[block] for block in twin.table] == [2, 2, 1]


def test_admission_leaves_the_spare_blocks() -> None:
    manager = KVManager(4, 4)
    assert manager.open(request("A", range(9)), spare=2) is not None
    assert manager.open(request("A", range(8)), spare=2) is None


@pytest.mark.parametrize("bs", [1, 3, 4])
def test_position_decides_when_a_block_is_needed(bs: int) -> None:
    manager = KVManager(64, bs)
    asker = computed(manager, request("A", [0]))
    for position in range(1, 20):
        growth = manager.grow(asker, position + 1)
        assert growth is not None
        assert len(growth.blocks) == (position % bs == 0)
        assert len(asker.table) == position // bs + 1
        asker.num_scheduled = position + 1


def test_growth_without_room_changes_nothing() -> None:
    manager = KVManager(1, 4)
    asker = computed(manager, request("A", range(4)))
    assert manager.grow(asker, 5) is None
    assert asker.table == [0]


def test_tails_are_given_up_before_heads() -> None:
    manager = KVManager(3, 4)
    manager.close(computed(manager, request("A", range(12))))
    assert list(manager.pool) == [2, 1, 0]
    computed(manager, request("B", range(100, 104)))
    assert manager.match(request("C", range(13))) == [0, 1]


def test_a_block_that_is_taken_loses_its_name() -> None:
    manager = KVManager(1, 4)
    manager.close(computed(manager, request("A", range(4))))
    assert len(manager.index) == 1
    manager.open(request("B", range(50, 53)))
    assert len(manager.index) == 0


def test_a_whole_prompt_in_the_cache_still_computes_its_last_token() -> None:
    manager = KVManager(8, 4)
    manager.close(computed(manager, request("A", range(8))))
    assert len(manager.match(request("B", range(8)))) == 1
    assert len(manager.match(request("C", range(9)))) == 2


def test_an_unfinished_or_uncomputed_block_is_not_published() -> None:
    manager = KVManager(8, 4)
    asker = request("A", range(11))
    manager.open(asker)
    for done, names in ((3, 0), (4, 1), (7, 1), (8, 2), (11, 2)):
        asker.num_computed = done
        manager.publish(asker)
        assert len(manager.index) == names


def test_hashes_are_computed_once_per_block() -> None:
    calls = []

    def hasher(parent: bytes, tokens: Any, extra: Any) -> bytes:
        calls.append(tuple(tokens))
        return repr((parent, tokens)).encode()

    manager = KVManager(8, 4, hasher=hasher)
    asker = request("A", range(13))
    for _ in range(3):
        manager.match(asker)
    computed(manager, asker)
    assert calls == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11)]


def forked(manager: KVManager, tokens: int, shared: int) -> tuple[Request, Request]:
    parent = computed(manager, request("P", range(tokens)))
    child = request("C", range(tokens))
    child.num_computed = child.num_scheduled = shared
    manager.fork(parent, child)
    return parent, child


def test_a_fork_shares_every_block_and_copies_only_the_one_it_writes() -> None:
    manager = KVManager(8, 4)
    parent, child = forked(manager, 6, 6)
    assert child.table == parent.table == [0, 1]
    growth = manager.grow(child, 7)
    assert growth is not None
    assert growth.copies == [(1, 2)]
    assert (parent.table, child.table) == ([0, 1], [0, 2])
    assert manager.pool.ref[:3] == [2, 1, 1]
    assert manager.grow(parent, 7) == ([], [])  # alone again: it may write where it is


def test_a_fork_at_a_block_edge_copies_nothing() -> None:
    manager = KVManager(8, 4)
    parent, child = forked(manager, 8, 8)
    for asker, block in ((parent, 2), (child, 3)):
        assert manager.grow(asker, 9) == ([(2, block)], [])


def test_a_copy_without_room_changes_nothing() -> None:
    manager = KVManager(2, 4)
    parent, child = forked(manager, 6, 6)
    assert manager.grow(child, 7) is None
    assert child.table == parent.table == [0, 1]
    manager.close(parent)
    assert manager.grow(child, 7) == ([], [])


def test_a_reset_drops_every_name_or_nothing() -> None:
    manager = KVManager(4, 4)
    manager.close(computed(manager, request("A", range(8))))
    live = computed(manager, request("B", range(50, 54)))
    assert manager.reset() is None
    assert len(manager.index) == 3
    manager.close(live)
    assert sorted(manager.reset() or ()) == [0, 1, 2]
    assert len(manager.index) == 0
    assert manager.pool.available == 4


def test_no_event_is_built_when_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(self: Event, *args: Any, **kwargs: Any) -> None:
        raise AssertionError(f"{type(self).__name__} was built for nobody")

    bus = Bus()
    manager = KVManager(2, 4, bus=bus)
    for kind in Event.__subclasses__():
        monkeypatch.setattr(kind, "__init__", explode)
    manager.close(computed(manager, request("A", range(8))))
    manager.close(computed(manager, request("B", range(50, 58))))
    bus.subscribe(lambda event: None)
    with pytest.raises(AssertionError, match="built for nobody"):
        manager.open(request("C", range(5)))

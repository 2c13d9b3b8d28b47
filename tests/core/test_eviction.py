"""Which cached block dies first, compared with the simplest list that could say so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm.core.eviction import BY_NAME, FIFO, LRU

ACTS = st.lists(st.one_of(st.integers(0, 4), st.integers(0, 4), st.just("pop")), min_size=4, max_size=60)


class ListModel:
    """Live blocks in a plain list, oldest first. `loyal`: a block that comes back takes its old place."""

    def __init__(self, loyal: bool) -> None:
        self.loyal, self.born, self.clock, self.live = loyal, {}, 0, []

    def insert(self, block: int) -> None:
        self.clock += 1
        if not (self.loyal and block in self.born):
            self.born[block] = self.clock
        self.live = sorted([*self.live, block], key=self.born.__getitem__)

    def remove(self, block: int) -> None:
        self.live.remove(block)

    def pop(self) -> int:
        block = self.live.pop(0)
        del self.born[block]
        return block


@pytest.mark.parametrize(("order", "loyal"), [(LRU, False), (FIFO, True)])
@given(ACTS)
def test_the_order_is_that_of_a_plain_list(order: type, loyal: bool, acts: list[int | str]) -> None:
    real, model = order(), ListModel(loyal)
    for act in acts:
        if act != "pop":
            name = "remove" if act in model.live else "insert"
            getattr(real, name)(act)
            getattr(model, name)(act)
        elif model.live:
            assert real.pop() == model.pop()
        assert list(real) == model.live
        assert len(real) == len(model.live)


def test_a_hit_saves_a_block_under_lru_and_not_under_fifo() -> None:
    for order, victim in ((LRU(), 2), (FIFO(), 1)):
        for block in (1, 2, 3):
            order.insert(block)
        order.remove(1)
        order.insert(1)
        assert next(iter(order)) == victim
        assert order.pop() == victim


def test_fifo_stays_small_however_often_a_block_is_hit() -> None:
    order = FIFO()
    for _ in range(1_000):
        order.insert(5)
        order.remove(5)
    assert len(order._heap) == 1


def test_fifo_forgets_the_age_of_a_block_that_was_given_up() -> None:
    order = FIFO()
    for block in (1, 2):
        order.insert(block)
    assert order.pop() == 1
    order.insert(1)
    assert list(order) == [2, 1]


@pytest.mark.parametrize("order", BY_NAME.values())
def test_removing_or_popping_what_is_not_there_is_an_error(order: type) -> None:
    with pytest.raises(KeyError):
        order().remove(1)
    with pytest.raises((KeyError, IndexError)):
        order().pop()

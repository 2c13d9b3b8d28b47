"""What the host sends of those who join reaches their own lines on the device, and no other line."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm.core.plan import Join, Plan
from minivllm.request import SamplingParams
from minivllm.runtime.state import RequestState

SEATS, LONGEST, SIZE = 6, 40, 4


def join(name: str, tokens: list[int], table: list[int]) -> Join:
    return Join(name, tuple(tokens), len(tokens), tuple(table), SamplingParams(), frozenset(), 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.lists(st.integers(1, 1 << 30), min_size=1, max_size=LONGEST), max_size=3), max_size=5))
def test_every_joins_tokens_table_and_length_are_on_its_own_line(waves: list[list[list[int]]]) -> None:
    state, alive, left, number = RequestState(SEATS, LONGEST, SIZE, torch.device("cpu")), {}, [], 0
    for tick, wave in enumerate(waves):
        while len(alive) + len(wave) > SEATS:
            left.append(next(iter(alive)))
            del alive[left[-1]]
        joined = []
        for tokens in wave:
            number += 1
            table = [number * 100 + block for block in range(-(-len(tokens) // SIZE))]
            alive[str(number)] = (tokens, table)
            joined.append(join(str(number), tokens, table))
        state.upload.next_step()
        state.apply(Plan(tick, (), left=tuple(left), joined=tuple(joined)))
        left = []
        assert set(state.seat) == set(alive) and len(set(state.seat.values())) == len(alive)
        for name, (tokens, table) in alive.items():
            seat = state.seat[name]
            assert state.tokens[seat, : len(tokens)].tolist() == tokens
            assert state.tables[seat, : len(table)].tolist() == table
            assert state.lengths[seat] == len(tokens)

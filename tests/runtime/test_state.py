"""What the host sends of those who join reaches their own lines on the device, and no other line."""

import sys
from itertools import count

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm.core.plan import Join, Plan, Row
from minivllm.request import SamplingParams
from minivllm.runtime.state import RequestState
from minivllm.runtime.upload import RING, Uploader

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


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.lists(st.integers(1, 1 << 30), min_size=1, max_size=LONGEST), st.booleans()), max_size=SEATS),
       st.randoms(use_true_random=False))  # fmt: skip
def test_of_cached_tokens_only_those_are_sent_that_penalties_look_back_at(prompts, random) -> None:
    state, rows, joined = RequestState(SEATS, LONGEST, SIZE, torch.device("cpu")), [], []
    for number, (tokens, penalty) in enumerate(prompts):
        start = random.randrange(len(tokens))
        rows.append(Row(str(number), 0, start, len(tokens) - start, True))
        params = SamplingParams(repetition_penalty=1.5 if penalty else 1.0)
        joined.append(join(str(number), tokens, [])._replace(params=params))
    state.upload.next_step()
    state.apply(Plan(1, tuple(rows), joined=tuple(joined)))
    for row, (tokens, penalty) in zip(rows, prompts, strict=True):
        line, sent = state.tokens[state.seat[row.request_id]].tolist(), 0 if penalty else row.start
        assert line == [0] * sent + tokens[sent:] + [0] * (LONGEST - len(tokens))


def test_an_interrupt_while_requests_are_seated_gives_no_seat_twice() -> None:
    """The plan was lost; the next one tells once more of those who had left, and seats everybody else anew."""
    for line in count(1):
        state, left = RequestState(SEATS, LONGEST, SIZE, torch.device("cpu")), line
        state.apply(Plan(1, (), joined=tuple(join(name, [1, 2], [3]) for name in "abc")))

        def stop(frame, event, arg):
            nonlocal left
            if not frame.f_code.co_filename.endswith("state.py"):
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return stop

        before = sys.gettrace()
        sys.settrace(stop)
        try:
            state.apply(Plan(2, (), left=("a", "b"), joined=(join("d", [4], [5]), join("e", [6], [7]))))
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        everybody = "uvwxyz"
        state.apply(Plan(3, (), left=tuple("abcde"), joined=tuple(join(name, [8], [9]) for name in everybody)))
        assert sorted(state.seat) == list(everybody) and len(set(state.seat.values())) == SEATS, line
        if left > 0:
            assert line > 20
            return


def test_a_batch_knows_its_rows_bounds_since_kernels_are_left_out_by_them() -> None:
    state = RequestState(SEATS, LONGEST, SIZE, torch.device("cpu"))
    joined = [join(name, list(range(1, 10)), [1, 2, 3]) for name in "abc"]
    rows = (Row("a", 0, 8, 1, True), Row("b", 0, 2, 7, True), Row("c", 0, 0, 3, False))
    state.apply(Plan(1, rows, joined=tuple(joined)))
    bounds = [
        (batch.min_query_len, batch.max_query_len, batch.max_context_len)
        for batch in (state.batch(some)[1] for some in (rows, rows[:1], rows[1:2], rows[2:]))
    ]
    assert bounds == [(1, 7, 9), (1, 1, 9), (7, 7, 9), (3, 3, 3)]


def test_what_was_staged_for_a_step_is_untouched_while_the_next_ones_are_staged() -> None:
    """On a GPU the copy out of a buffer may run a step later: here nobody copies, and the buffers are looked at."""
    upload = Uploader(torch.device("cpu"))
    upload._pinned, upload._ring = True, [torch.empty(256, dtype=torch.uint8) for _ in range(RING)]
    staged = []
    for step in range(2 * RING):
        upload.next_step()
        staged.append([upload.stage(np.full(3, 10 * step + part, dtype=np.int32)) for part in range(4)])
        for back in range(RING - 1):
            for part, tensor in enumerate(staged[step - back] if back <= step else []):
                assert tensor.tolist() == [10 * (step - back) + part] * 3

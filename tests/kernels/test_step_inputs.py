"""The device-side state of requests: a step's inputs are gathered from it, sampled tokens are written back into it."""

from __future__ import annotations

import torch
from torch import Tensor

from minivllm.kernels.launch import INTERPRETED
from minivllm.kernels.step_inputs import append_tokens, step_inputs

DEVICE = "cpu" if INTERPRETED else "cuda"
BLOCK_SIZE = 4


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def state() -> tuple[Tensor, Tensor, Tensor]:
    """Three seats of at most 20 tokens; token p of seat s is 100 * s + p, and its block p // 4 is 10 * s + p // 4."""
    tokens = torch.arange(3)[:, None] * 100 + torch.arange(20)
    tables = torch.arange(3)[:, None] * 10 + torch.arange(5)
    return tokens.int().to(DEVICE), ints(9, 20, 6), tables.int().to(DEVICE)


def prepare(seats: Tensor, starts: Tensor, query_starts: Tensor, longest: int, width: int = 5) -> dict[str, Tensor]:
    tokens, lengths, tables = state()
    fed = int(query_starts[-1])
    filled = {
        "token_ids": torch.full((fed,), -7, dtype=torch.int64, device=DEVICE),
        "positions": torch.full((fed,), -7, dtype=torch.int32, device=DEVICE),
        "slots": torch.full((fed,), -7, dtype=torch.int64, device=DEVICE),
        "context_lens": torch.full_like(seats, -7),
        "block_tables": torch.full((len(seats), width), -7, dtype=torch.int32, device=DEVICE),
    }
    step_inputs(seats, starts, query_starts, tokens, lengths, tables, BLOCK_SIZE, longest, **filled)
    return filled


def test_a_decode_feeds_the_newest_token() -> None:
    found = prepare(ints(2, -1, 0), ints(-1, -1, -1), ints(0, 1, 2, 3), 1)
    assert found["token_ids"].tolist() == [205, 0, 8]
    assert found["positions"].tolist() == [5, 0, 8]
    assert found["slots"].tolist() == [21 * 4 + 1, -1, 2 * 4 + 0]
    assert found["context_lens"].tolist() == [6, 0, 9]
    assert found["block_tables"].tolist() == [[20, 21, -7, -7, -7], [-7] * 5, [0, 1, 2, -7, -7]]


def test_chunks_of_prompts_and_decodes_mix() -> None:
    found = prepare(ints(1, 0, -1), ints(3, -1, -1), ints(0, 4, 5, 7), 4)
    assert found["token_ids"].tolist() == [103, 104, 105, 106, 8, 0, 0]
    assert found["positions"].tolist() == [3, 4, 5, 6, 8, 0, 0]
    assert found["slots"].tolist() == [43, 44, 45, 46, 8, -1, -1]
    assert found["context_lens"].tolist() == [7, 9, 0]


def test_rows_longer_than_a_program_and_tables_wider_than_one() -> None:
    tokens = torch.arange(700, dtype=torch.int32, device=DEVICE)[None]
    tables = torch.arange(700, dtype=torch.int32, device=DEVICE)[None] + 5
    out = [torch.zeros(600, dtype=dtype, device=DEVICE) for dtype in (torch.int64, torch.int32, torch.int64)]
    context, table = ints(0), torch.zeros(1, 700, dtype=torch.int32, device=DEVICE)
    step_inputs(ints(0), ints(50), ints(0, 600), tokens, ints(700), tables, 1, 600, *out, context, table)
    assert torch.equal(out[0].int(), tokens[0, 50:650])
    assert torch.equal(out[2], tables[0, 50:650].long())
    assert int(context) == 650
    assert torch.equal(table[0, :650], tables[0, :650])


def test_sampled_tokens_go_behind_the_others_and_are_fed_next() -> None:
    tokens, lengths, _ = state()
    append_tokens(torch.tensor([7, 8, 9], device=DEVICE), ints(2, -1, 0), tokens, lengths)
    assert lengths.tolist() == [10, 20, 7]
    assert [int(tokens[0, 9]), int(tokens[2, 6])] == [9, 7]


def test_a_full_seat_takes_no_more() -> None:
    tokens, lengths, _ = state()
    before = tokens.clone()
    append_tokens(torch.tensor([7], device=DEVICE), ints(1), tokens, lengths)
    assert torch.equal(tokens, before)
    assert lengths.tolist() == [9, 20, 6]

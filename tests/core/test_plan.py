"""A plan in the making: chunks cut to the budget, and a preempted request taken out again without a trace."""

from minivllm.core.plan import Draft, Plan, Row
from minivllm.request import Request, SamplingParams


def request(name: str, tokens: int) -> Request:
    return Request(name, list(range(tokens)), SamplingParams(), limit=99)


def test_a_row_is_cut_to_the_budget_and_samples_only_at_the_end() -> None:
    draft, asker = Draft(6), request("A", 8)
    draft.add(asker, 8)
    assert (draft.rows, draft.budget) == ([Row("A", -1, 0, 6, False)], 0)
    assert (asker.num_scheduled, asker.num_pending) == (6, 0)
    draft = Draft(6)
    draft.add(asker, 8)
    assert (draft.rows, draft.budget) == ([Row("A", -1, 6, 2, True)], 4)
    assert (asker.num_scheduled, asker.num_pending) == (8, 1)


def test_dropping_a_request_gives_its_budget_back_and_leaves_the_others_alone() -> None:
    draft, kept, dropped = Draft(20), request("A", 5), request("B", 7)
    for asker in (kept, dropped):
        draft.add(asker, len(asker.tokens))
    draft.grown = [("A", 1, 3), ("B", 1, 4), ("B", 2, 5)]
    draft.copies = [(0, 3), (0, 4)]
    draft.drop(dropped)
    assert [row.request_id for row in draft.rows] == ["A"]
    assert draft.budget == 15
    assert draft.grown == [("A", 1, 3)]
    assert draft.copies == [(0, 3)]
    assert draft.preempted == ["B"]


def test_a_plan_counts_its_tokens() -> None:
    assert Plan(1, (Row("A", 1, 0, 6, False), Row("B", 2, 9, 1, True))).num_tokens == 7

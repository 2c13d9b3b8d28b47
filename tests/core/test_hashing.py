"""A block's name is the name of a whole prefix, equal wherever and from whatever it is computed."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minivllm.core.hashing import ROOT, block_hash, chain

TOKENS = [1, 2, 3, 4]
KNOWN = block_hash(ROOT, TOKENS).hex()


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_a_name_is_the_same_in_every_process(seed: str) -> None:
    code = "from minivllm.core.hashing import *; print(block_hash(ROOT, [1, 2, 3, 4]).hex())"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == KNOWN


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_name_is_the_same_for_every_container_of_integers(dtype: str) -> None:
    same = [tuple(TOKENS), range(1, 5), np.array(TOKENS, dtype), torch.tensor(TOKENS, dtype=getattr(torch, dtype))]
    assert {block_hash(ROOT, tokens).hex() for tokens in same} == {KNOWN}


def test_a_name_has_128_bits() -> None:
    assert len(block_hash(ROOT, TOKENS)) == 16


def test_token_boundaries_count() -> None:
    assert block_hash(ROOT, [1, 23, 4, 5]) != block_hash(ROOT, [12, 3, 4, 5])
    assert block_hash(ROOT, [1, 2]) != block_hash(ROOT, [1, 2, 0])


def test_the_whole_past_is_part_of_a_name() -> None:
    one, two = chain([1, 2, 3, 4, 5, 6], 2), chain([9, 2, 3, 4, 5, 6], 2)
    assert not set(one) & set(two)


def test_only_full_blocks_have_names() -> None:
    assert [len(chain(range(n), 4)) for n in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]
    assert chain(range(7), 4) == chain(range(4), 4)


def test_an_extra_key_changes_every_block_of_the_chain() -> None:
    names = [chain(range(12), 4, extra) for extra in ((), (("salt", "a"),), (("salt", "b"),), (("adapter", "a"),))]
    assert len({name for blocks in names for name in blocks}) == 12


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((("salt", "ab"), ("adapter", "c")), (("salt", "a"), ("adapter", "bc"))),
        ((("salt", "é"),), (("salt", "e"),)),
        ((("salt", "\ud800"),), (("salt", "\ud801"),)),
        ((("a", "b"),), (("ab", ""),)),
    ],
)
def test_extra_keys_cannot_be_taken_for_one_another(one: tuple, other: tuple) -> None:
    assert block_hash(ROOT, TOKENS, one) != block_hash(ROOT, TOKENS, other)


@given(st.lists(st.integers(0, 2), max_size=12), st.lists(st.integers(0, 2), max_size=12), st.integers(1, 4))
def test_names_are_equal_exactly_as_far_as_the_tokens_are(a: list[int], b: list[int], size: int) -> None:
    equal = 0
    while equal < min(len(a), len(b)) and a[equal] == b[equal]:
        equal += 1
    same = [x == y for x, y in zip(chain(a, size), chain(b, size), strict=False)]
    assert same == [index < equal // size for index in range(len(same))]

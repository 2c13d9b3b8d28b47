"""Two prompts block by block, each block under its hash: one token differs, and no later block has the same name.

Compared as the engine does it, by token ids and from the first block on; the words are there for the reader.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from minivllm.core.hashing import ROOT, ExtraKeys, block_hash, chain
from minivllm.lab.misses import explain_miss
from minivllm.narrate import count, listing, number
from minivllm.viz.words import Words

VOCABULARY = 32_000
"""Token ids of the simulated engine, in which each word becomes one."""
_TIME = re.compile(r"\d{1,2}:\d\d(:\d\d)?|\d{4}-\d\d-\d\d\S*")


class Row(NamedTuple):
    """One block of both prompts, the cached one first. A name is None if the block is not full, or not there.

    `state`: hit · last (same name, but B's last token is in it) · first (the first other name) · after (other names
    behind it) · wrong (same name after another past) · open (a name is missing). `differ`: slots with other tokens.
    """

    words: tuple[tuple[str, ...], tuple[str, ...]]
    names: tuple[str | None, str | None]
    state: str
    differ: tuple[int, ...]


def tokens_alone(parent: bytes, tokens: Sequence[int], extra: ExtraKeys = ()) -> bytes:
    """A hash that forgets the past, and is wrong for it: equal tokens are found again after any prefix."""
    return block_hash(ROOT, tokens, extra)


def brief(word: str) -> str:
    """A word short enough for a sentence."""
    return word if len(word) <= 16 else f"{word[:15]}…"


class Pair:
    """Prompt A, in the cache, and prompt B, just arrived, as rows of `size` tokens; what hits, and the words for it."""

    def __init__(self, cached: Sequence[str], arrived: Sequence[str], size: int, chained: bool = True) -> None:
        encode = Words(None, VOCABULARY).encode
        self.words, self.size, self.chained = (tuple(cached), tuple(arrived)), size, chained
        a, b = ([encode(word)[0] for word in prompt] for prompt in self.words)
        self.ids, self.miss = (a, b), explain_miss(a, b, size)
        self.names: Sequence[Sequence[str]] = self.miss.hashes
        if not chained:
            self.names = [[name.hex() for name in chain(ids, size, hasher=tokens_alone)] for ids in self.ids]
        self.total = len(self.ids[1]) // size
        self.rows = [self._row(block) for block in range(-(-max(map(len, self.ids)) // size))]
        self.wrong = sum(row.state == "wrong" for row in self.rows)
        self.hits = self.wrong + sum(row.state == "hit" for row in self.rows)

    def _row(self, block: int) -> Row:
        here = slice(block * self.size, (block + 1) * self.size)
        a, b = (names[block] if block < len(names) else None for names in self.names)
        parted = self.miss.block is not None and block > self.miss.block
        if a is None or b is None:
            state = "open"
        elif a != b:
            state = "after" if parted else "first"
        elif block >= (len(self.ids[1]) - 1) // self.size:
            state = "last"
        else:
            state = "wrong" if parted else "hit"
        pairs = zip(self.ids[0][here], self.ids[1][here], strict=False)
        differ = tuple(slot for slot, (x, y) in enumerate(pairs) if x != y)
        return Row((self.words[0][here], self.words[1][here]), (a and a[:4], b and b[:4]), state, differ)

    # -- in words ------------------------------------------------------------------------------------------------

    @property
    def parting(self) -> tuple[str, str]:
        """The two words at the first difference; empty if there is none."""
        at = self.miss.index
        return ("", "") if at is None else (brief(self.words[0][at]), brief(self.words[1][at]))

    @property
    def kind(self) -> str:
        """What the two parting words are, as far as they tell: a timestamp, or nothing known."""
        return "timestamp" if all(_TIME.fullmatch(word) for word in self.parting) else ""

    @property
    def headline(self) -> str:
        """How many of B's full blocks hit."""
        if not self.total:
            return "No full block"
        if self.wrong:
            return f"{self.hits} of {self.total} match, {self.wrong} wrongly"
        return f"{self.hits} of {count(self.total, 'block')} hit"

    def say(self) -> list[Any]:
        """Where the two part and what that does to the blocks behind it, in pieces; `{"b": …}` is to be set bold."""
        if self.total == 0:
            return [
                f"B has {count(len(self.ids[1]), 'token')} and a block holds {self.size}: no hash, so nothing to hit."
            ]
        if not self.names[0]:
            return [f"A has {count(len(self.ids[0]), 'token')} and a block holds {self.size}: it left nothing to hit."]
        if self.miss.index is None:
            return [self._agreeing()]
        what = [", a ", {"b": self.kind}, ". "] if self.kind else [": {} against {}. ".format(*self.parting)]
        return [f"The two prompts part at token {self.miss.index}", *what, self._behind()]

    def _agreeing(self) -> str:
        a, b = map(len, self.ids)
        if a < b:
            return "A is the beginning of B: its full blocks hit, and all that follows is computed."
        begin = "The prompts are equal" if a == b else "B is the beginning of A"
        if b % self.size:
            return f"{begin}: every full block hits. The last one is not full, so it has no hash and is computed."
        return (
            f"{begin} and every hash is the same. The last token is always computed, so block {self.total - 1}, "
            "which holds it, is not reused."
        )

    def _behind(self) -> str:
        state = self.rows[self.miss.block or 0].state
        same, after = self.same_words, [row for row in self.rows if row.state == "after"]
        if not self.chained and self.wrong:
            verb = "matches" if self.wrong == 1 else "match"
            return (
                f"Hashed by its tokens alone, {_blocks(self.states('wrong'))} {verb} as well. That is wrong: B would "
                f"read K and V computed after {self.parting[0]}."
            )
        if not self.chained:
            return "Hashed by its tokens alone, no block more is found here: none behind it holds the same words."
        if same:
            one = len(same) == 1
            told = f"{_blocks(same)} {'holds' if one else 'hold'} the same words in both and still miss{'es' * one}"
            return f"{told[0].upper()}{told[1:]}: {'its' if one else 'each'} hash contains the one before it."
        if state == "open":
            return "That block is not full in both, so there is no hash to compare and nothing to hit."
        return (
            "Every hash behind it differs: each contains the one before it." if after else "It is the last to compare."
        )

    @property
    def same_words(self) -> list[int]:
        """Blocks behind the first mismatch that hold the same tokens and have other names."""
        return [k for k in self.states("after") if not self.rows[k].differ]

    def states(self, state: str) -> list[int]:
        """The blocks in a state."""
        return [k for k, row in enumerate(self.rows) if row.state == state]

    def why(self) -> str:
        """What a hash of the tokens alone would do to these two prompts."""
        same = self.same_words if self.chained else self.states("wrong")
        if not same:
            return ""
        if self.chained:
            return (
                f"With tokens alone, {_blocks(same)} would match as well, and B would read K and V computed after "
                f"{self.parting[0]}. The words agree; the numbers do not."
            )
        block = self.miss.block or 0
        return (
            f"A lookup ends at its first miss, which is block {block} here. As soon as any prompt leaves a block "
            f"“{' '.join(map(brief, self.rows[block].words[1]))}” behind, B reads on into A's {_blocks(same)}."
        )

    def notes(self) -> list[dict[str, Any]]:
        """What stands beside the rows: one note for each run of rows with the same words; `loss` marks an alarm."""
        found: list[dict[str, Any]] = []
        for block, row in enumerate(self.rows):
            words = self._note(block, row)
            if found and found[-1]["words"] == words:
                found[-1]["last"] = block
            else:
                loss = row.state in ("first", "wrong") or self.miss.block == block
                found.append({"first": block, "last": block, "words": words, "loss": loss})
        return found

    def _note(self, block: int, row: Row) -> str:
        a, b = row.words
        parting = "first mismatch: token {}, {} against {}".format(self.miss.index, *self.parting)
        if row.state == "open":
            if not a or not b:
                return (
                    "B has ended" if a else "A has ended: nothing to hit" if row.names[1] else "not full: no hash yet"
                )
            who = "" if row.names == (None, None) else "A's is " if row.names[1] else "B's is "
            return f"{parting}; {who}not full" if self.miss.block == block else f"{who}not full: no hash yet"
        if row.state == "hit":
            many = len(self.states("hit"))
            return f"hit: B points its table at A's {'block' if many == 1 else f'{number(many)} blocks'}"
        return {
            "last": "same hash, not reused: the last token is always computed",
            "first": parting,
            "wrong": f"same hash, wrong past: A's K and V saw {self.parting[0]}",
            "after": "other words here too" if row.differ else "same words, other hash: their K and V saw a different past",
        }[row.state]  # fmt: skip


def _blocks(ids: Sequence[int]) -> str:
    """`block 3`, `blocks 3 and 4`, `blocks 3 to 6`."""
    if len(ids) > 3 and ids[-1] - ids[0] == len(ids) - 1:
        return f"blocks {ids[0]} to {ids[-1]}"
    return f"block{'s' * (len(ids) > 1)} {''.join(listing([str(k) for k in ids]))}"

"""What a kernel's trace says, line by line: the sentence above the stepper, and what a screen reader hears."""

import math
from typing import Any

import numpy as np

from minivllm.lab.kernel_trace import Step, Trace

Values = dict[str, Any]


class Story:
    """Sentences for the steps of one program. `who`: the request; `tokens`, `pages`: its length."""

    def __init__(self, trace: Trace, who: str, head: int, tokens: int, block_size: int) -> None:
        self.trace, self.who, self.head, self.tokens, self.size = trace, who, head, tokens, block_size
        self.pages = -(-tokens // block_size)

    def tell(self) -> list[str]:
        """One sentence (or two) per step, in order."""
        before: Values = {}
        told: list[str] = []
        for step in self.trace.steps:
            now = before | step.made
            told.append(" ".join(part for part in (self._step(step, before, now), self._places(step)) if part))
            before = now
        return told

    def _step(self, step: Step, old: Values, new: Values) -> str:
        code = self.trace.lines[step.line].strip()
        if code.startswith("for "):
            last = ", the last" if new["j"] == self.pages - 1 else ""
            return f"Page {new['j'] + 1} of {self.pages}{last}."
        if code.startswith("tl.store"):
            return f"Weighted values, divided by the sum of weights: the output of {self.who}, head {self.head}."
        name = code.split("=")[0].strip()
        teller = getattr(self, f"_{name.replace(', ', '_')}", None)
        return str(teller(old, new)) if teller else f"{name} is computed."

    def _row_head_slot_d(self, old: Values, new: Values) -> str:
        whose = f"This program works for row {new['row']}, request {self.who}, and query head {new['head']}"
        return f"{whose}. Its lanes: {len(new['slot'])} slots of a block, {len(new['d'])} numbers of a head."

    def _n_mine(self, old: Values, new: Values) -> str:
        return f"{self.who} has {new['n']} tokens, so {self.pages} pages will be read."

    def _query(self, old: Values, new: Values) -> str:
        return f"The query of the newest token, scaled by 1 / √{len(new['query'])} at once."

    def _m_l_acc(self, old: Values, new: Values) -> str:
        return "Nothing seen yet: largest score −∞, sum of weights 0, output 0."

    def _b(self, old: Values, new: Values) -> str:
        return f"The block table says: page {new['j'] + 1} lies in block {new['b']}."

    def _valid(self, old: Values, new: Values) -> str:
        real = int(np.sum(new["valid"]))
        if real == self.size:
            return f"All {self.size} slots of block {new['b']} hold tokens of {self.who}."
        return (
            f"Only {real} of the {self.size} slots of block {new['b']} belong to {self.who}: the rest must be masked."
        )

    def _at(self, old: Values, new: Values) -> str:
        return (
            f"Where the {new['at'].size} numbers stand in the pool: block {new['b']}, then slot, key head, dimension."
        )

    def _k(self, old: Values, new: Values) -> str:
        return f"Keys of block {new['b']} are read{self._masked(new)}."

    def _v(self, old: Values, new: Values) -> str:
        if np.isnan(new["v"]).any():
            return f"Values of block {new['b']} are read, and with them NaN that nobody wrote."
        return f"Values of block {new['b']} are read{self._masked(new)}."

    def _s(self, old: Values, new: Values) -> str:
        masked = int(np.sum(np.isneginf(new["s"])))
        return "Query times key, a score for each token" + (f"; the {masked} masked ones get −∞." if masked else ".")

    def _m2(self, old: Values, new: Values) -> str:
        if _number(old["m"]) == -math.inf:
            return f"The largest score so far is {new['m2']:.2f}."
        if new["m2"] > old["m"]:
            return f"A larger score turns up: the maximum rises from {old['m']:.2f} to {new['m2']:.2f}."
        return f"No larger score: the maximum stays {new['m2']:.2f}."

    def _a(self, old: Values, new: Values) -> str:
        factor = _number(new["a"])
        if factor == 0:
            return "There is nothing to shrink yet."
        return "Nothing has to shrink." if factor == 1 else f"Everything summed so far must shrink by {factor:.3f}."

    def _p(self, old: Values, new: Values) -> str:
        return "A weight for each token: 1 for the largest score so far, less for the others" + (
            ", 0 for the masked." if 0 in new["p"] else "."
        )

    def _l(self, old: Values, new: Values) -> str:
        fresh = float(np.sum(new["p"]))
        if _number(old["l"]) == 0:
            return f"The sum of weights is {new['l']:.2f}."
        return f"The sum of weights: {_number(new['a']):.3f} × {_number(old['l']):.2f} + {fresh:.2f} = {new['l']:.2f}."

    def _acc(self, old: Values, new: Values) -> str:
        if np.isnan(new["acc"]).any():
            return "0 × NaN is NaN: the output is lost, whatever comes now."
        return "The output so far shrinks alike, and this page's values join it, each with its weight."

    def _m(self, old: Values, new: Values) -> str:
        return f"The maximum, {_number(new['m']):.2f}, goes along to the next page."

    def _masked(self, new: Values) -> str:
        real = int(np.sum(new["valid"]))
        return "" if real == self.size else f", {real} rows of {self.size}; the masked ones are 0"

    def _places(self, step: Step) -> str:
        told = []
        for access in step.touched:
            if access.tensor not in ("K", "V"):
                continue
            real = access.index[access.index >= 0]
            told.append(
                f"{access.tensor}[{int(real.min()):,} … {int(real.max()):,}], {real.size} of {access.index.size} lanes."
            )
            if access.outside:
                told.append(f"{access.outside} addresses lie outside {access.tensor}!")
        return " ".join(told)


def _number(value: Any) -> float:
    return float(np.asarray(value).reshape(-1)[0])

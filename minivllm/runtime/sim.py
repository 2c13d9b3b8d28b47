"""The engine without a model: a K/V slot stores (token, position); the next token is a hash of all that is *read back*.

Real scheduler, real block tables, real slots: only the arithmetic is missing. Since a token depends on everything read
through the table, a wrong table, a stale block or sharing before the content exists shows up as wrong text, or as a
`RuntimeError` when a slot nobody wrote is read.
"""

import numpy as np

from minivllm.core.plan import Plan
from minivllm.runtime.ticket import StepResult

_POISON = -1
_MIX = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: spreads neighbouring numbers


class SimRunner:
    """Runs plans over an integer pool `[num_blocks, block_size]`; greedy and sampled requests alike are deterministic.

    With temperature 0 the text is a function of the tokens alone; otherwise of the request's seed too.
    """

    asynchronous = False

    def __init__(self, num_blocks: int, block_size: int, vocab_size: int = 32_000) -> None:
        self.vocab_size = vocab_size
        self.resize(num_blocks, block_size)

    def resize(self, num_blocks: int, block_size: int) -> None:
        """A new, empty pool; every request's state is dropped."""
        self.block_size = block_size
        self.pool = np.full((num_blocks, block_size), _POISON, dtype=np.int64)
        self.tokens: dict[str, list[int]] = {}
        self.tables: dict[str, list[int]] = {}
        self._salt: dict[str, int] = {}

    def launch(self, plan: Plan) -> StepResult:
        """Carry out a plan; the ticket is the result itself."""
        for name in plan.left:
            for state in (self.tokens, self.tables, self._salt):
                state.pop(name, None)
        for join in plan.joined:
            self.tokens[join.request_id], self.tables[join.request_id] = list(join.tokens), list(join.table)
            self._salt[join.request_id] = join.seed if join.params.temperature else 0
        for name, index, block in plan.grown:
            table = self.tables[name]
            table[index:] = [block]
        for source, block in plan.copies:
            self.pool[block] = self.pool[source]
        for row in plan.rows:  # all writes come before any read, as in the real layers
            self._write(row.request_id, row.start, row.count)
        tokens = [self._next(row.request_id, row.start + row.count) if row.sample else -1 for row in plan.rows]
        for row, token in zip(plan.rows, tokens, strict=True):
            if row.sample:
                self.tokens[row.request_id].append(token)
        return StepResult(tokens)

    def wait(self, ticket: StepResult) -> StepResult:
        """The result of a launched step."""
        return ticket

    def close(self) -> None:
        """Drop the pool."""
        self.resize(0, self.block_size)

    def choose(self, values: np.ndarray, salt: int) -> int:
        """The next token from the stored values `[context]`; override it to script a model."""
        mixed = (int(values.sum()) + salt) * _MIX & 0xFFFFFFFFFFFFFFFF
        return (mixed >> 32) % self.vocab_size

    def _write(self, name: str, start: int, count: int) -> None:
        table, tokens, size = self.tables[name], self.tokens[name], self.block_size
        if count == 1:
            self.pool[table[start // size], start % size] = _value(tokens[start], start)
            return
        positions = np.arange(start, start + count)
        blocks = np.asarray(table, dtype=np.int64)[positions // size]
        self.pool[blocks, positions % size] = _value(
            np.asarray(tokens[start : start + count], dtype=np.int64), positions
        )

    def _next(self, name: str, context: int) -> int:
        table = self.tables[name][: -(-context // self.block_size)]
        values = self.pool[table].reshape(-1)[:context]
        if values.min() < 0:
            position = int(np.argmin(values))
            raise RuntimeError(
                f"{name} reads position {position} of {context}: slot {position % self.block_size} of block "
                f"{table[position // self.block_size]} was never written"
            )
        return self.choose(values, self._salt[name])


def _value(token: int | np.ndarray, position: int | np.ndarray) -> int | np.ndarray:
    """One non-negative number for (token, position), the stand-in for K and V."""
    return ((token + 1) * 1_000_003 + (position + 1) * 7_919) * (position * 2 + 3) & 0xFFFFFFFFFFFF

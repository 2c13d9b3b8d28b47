"""Wrong solutions, one file per chapter, and the words each one's hint must hold.

MUTANTS = {
    "03.slot": [
        Mutant("forgets the offset", ("* B + pos % B", "* B"), says="offset"),
        Mutant("asks the wrong block", ("pos // B", "pos % B"), says="table["),
        Mutant("starts at one", ("+ pos % B", "+ pos % B + 1"), says="slot 9, not 10"),
    ],
}
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mutant:
    """The chapter's own solution with one piece exchanged (before, after), or a `source` of its own."""

    mistake: str
    change: tuple[str, str] | None = None
    source: str | None = None
    says: str = field(kw_only=True)

    def of(self, solution: str) -> str:
        """The wrong solution. Raises ValueError where the solution does not hold the piece exactly once."""
        if self.source is not None:
            return self.source
        before, after = self.change or ("", "")
        if not before or solution.count(before) != 1:
            raise ValueError(f"mutant {self.mistake!r}: {before!r} is not in the solution exactly once")
        return solution.replace(before, after)

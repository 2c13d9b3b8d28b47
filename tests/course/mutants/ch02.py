"""What goes wrong with holes."""

from mutants import Mutant

GAP = "largest = max(largest, start - at)"
FIT = "any(hole >= tokens for hole in holes)"
BLOCKS = "sum(hole // block_size for hole in holes)"
AFTER = "min((start for start, _ in extents), default=0)"

MUTANTS = {
    "02.largest_hole": [
        Mutant("forgets the end", ("max(largest, size - at)", "largest"), says="behind the last"),
        Mutant("does not sort", ("sorted(extents)", "extents"), says="sort them by start"),
        Mutant("forgets the beginning", ("largest = at = 0", f"largest, at = 0, {AFTER}"), says="before the first"),
        Mutant("adds the holes up", (GAP, "largest += start - at"), says="do not add up"),
        Mutant("says nothing", source="def largest_hole(size, extents): pass", says="`return` missing"),
        Mutant("keeps the last hole", (GAP, "largest = start - at"), says="not the last one"),
    ],
    "02.can_admit": [
        Mutant("adds up what lies apart", (FIT, "sum(holes) >= tokens"), says="needs one piece"),
        Mutant("refuses an exact fit", ("hole >= tokens", "hole > tokens"), says="exactly 8 slots"),
        Mutant("rounds the need down", ("-(-tokens // block_size)", "tokens // block_size"), says="round up"),
        Mutant(
            "looks for one hole", (BLOCKS, "max([h // block_size for h in holes], default=0)"), says="does not matter"
        ),
        Mutant("counts slots, not blocks", (BLOCKS, "sum(holes) // block_size"), says="no block"),
        Mutant(
            "adds up holes that are large enough",
            (BLOCKS, "sum(h for h in holes if h >= block_size) // block_size"),
            says="a hole of 6 holds one block of 4",
        ),
        Mutant("says nothing", source="def can_admit(tokens, holes, block_size=None): pass", says="`return` missing"),
        Mutant("stumbles over no hole", (FIT, "max(holes) >= tokens"), says="max()"),
    ],
}

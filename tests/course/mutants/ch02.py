"""What goes wrong with holes."""

from mutants import Mutant

MUTANTS = {
    "02.largest_hole": [
        Mutant("forgets the hole behind the last piece", ("max(largest, size - at)", "largest"), says="behind the last"),
        Mutant("does not sort", ("sorted(extents)", "extents"), says="sort them by start"),
        Mutant("forgets the hole before the first", ("largest = at = 0", "largest, at = 0, min((s for s, _ in extents), default=0)"), says="before the first"),
        Mutant("adds the holes up", ("largest = max(largest, start - at)", "largest += start - at"), says="do not add up"),
        Mutant("keeps the last hole", ("largest = max(largest, start - at)", "largest = start - at"), says="not the last one"),
    ],
    "02.can_admit": [
        Mutant("adds up what lies apart", ("any(hole >= tokens for hole in holes)", "sum(holes) >= tokens"), says="needs one piece"),
        Mutant("refuses an exact fit", ("hole >= tokens", "hole > tokens"), says="exactly 8 slots"),
        Mutant("rounds the need down", ("-(-tokens // block_size)", "tokens // block_size"), says="round up"),
        Mutant("looks for one hole in a paged memory", ("sum(hole // block_size for hole in holes)", "max([hole // block_size for hole in holes], default=0)"), says="where they lie does not matter"),
        Mutant("counts slots, not blocks", ("sum(hole // block_size for hole in holes)", "sum(holes) // block_size"), says="no block"),
        Mutant("stumbles over no hole", ("any(hole >= tokens for hole in holes)", "max(holes) >= tokens"), says="max()"),
    ],
}

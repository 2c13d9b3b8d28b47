"""What goes wrong between a position and its slot."""

from mutants import Mutant

MUTANTS = {
    "03.slot": [
        Mutant("forgets the offset", ("* B + pos % B", "* B"), says="offset"),
        Mutant("forgets that a block has B slots", ("] * B", "]"), says="multiply before you add"),
        Mutant("asks the wrong block", ("pos // B", "pos % B"), says="you asked table[9 % 4]"),
        Mutant(
            "knows blocks of 4 only", ("table[pos // B] * B + pos % B", "table[pos // 4] * 4 + pos % 4"), says="use B"
        ),
        Mutant("returns nothing", ("return ", ""), says="`return` missing"),
        Mutant("counts from one", ("pos % B", "(pos - 1) % B"), says="count positions from 0"),
        Mutant("asks nobody", ("table[pos // B] * B + pos % B", "pos"), says="ask the table"),
        Mutant(
            "answers with a block", ("table[pos // B] * B + pos % B", "table[pos // B]"), says="a block, not a slot"
        ),
        Mutant("starts at one", ("+ pos % B", "+ pos % B + 1"), says="slot 21, not 22"),
    ],
    "03.blocks_needed": [
        Mutant("rounds down", ("-(-n // B)", "n // B"), says="round up"),
        Mutant("always takes one more", ("-(-n // B)", "n // B + 1"), says="exactly"),
        Mutant("keeps a block for nothing", ("-(-n // B)", "max(1, -(-n // B))"), says="no tokens need no block"),
        Mutant("returns nothing", ("return ", ""), says="`return` missing"),
        Mutant("uses floats", ("-(-n // B)", "int(n / B + 1 - 1e-9)"), says="inexact"),
    ],
}

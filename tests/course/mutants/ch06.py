"""What goes wrong with names and beginnings."""

from mutants import Mutant

MUTANTS = {
    "06.block_hashes": [
        Mutant("hashes a block's tokens alone", ("block_hash(parent,", "block_hash(ROOT,"), says="own tokens alone"),
        Mutant("names the unfinished block", ("len(tokens) // B", "-(-len(tokens) // B)"), says="has no name yet"),
        Mutant(
            "hashes all tokens so far", ("tokens[i * B : (i + 1) * B]", "tokens[: (i + 1) * B]"), says="hash (name of"
        ),
        Mutant(
            "names a block by its whole past", ("parent, tokens[i * B :", "ROOT, tokens[:"), says="right in meaning"
        ),
        Mutant("starts from something else", ("ROOT, []", "b'root', []"), says="ROOT first"),
        Mutant("gives only the last", ("return names", "return names[-1:]"), says="two names, not 1"),
        Mutant("leaves the last block out", ("len(tokens) // B", "(len(tokens) - 1) // B - 1"), says="two names"),
    ],
    "06.first_mismatch": [
        Mutant("turns the pair round", ("return i // B, i", "return i, i // B"), says="wrong way round"),
        Mutant("gives the index only", ("return i // B, i", "return i"), says="a pair"),
        Mutant("says where the block begins", ("return i // B, i", "return i // B, i // B * B"), says="has index 3"),
        Mutant("takes the token for the block", ("return i // B, i", "return i, i"), says="lies in block 1"),
        Mutant("never finds it", ("if x != y", "if False"), says="no None"),
        Mutant(
            "calls the shorter one different",
            ("return None", "return min(len(a), len(b)) // B, min(len(a), len(b))"),
            says="so None",
        ),
    ],
}

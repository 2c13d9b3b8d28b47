"""What goes wrong with names and beginnings."""

from mutants import Mutant

LAST = """
def first_mismatch(a, b, B):
    found = None
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            found = i // B, i
    return found
"""
BY_BLOCKS = """
def first_mismatch(a, b, B):
    for k in range(-(-min(len(a), len(b)) // B)):
        last = min((k + 1) * B, len(a), len(b))
        if a[k * B : last] != b[k * B : last]:
            return k, last - 1
"""
LONGER = """
def first_mismatch(a, b, B):
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return i // B, i
    return (len(b) // B, len(b)) if len(a) > len(b) else None
"""

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
        Mutant("returns nothing", ("    return names", "    names"), says="`return` missing"),
        Mutant(
            "stops before a block that fills the prompt", ("len(tokens) // B", "(len(tokens) - 1) // B"), says="is full"
        ),
        Mutant("gives only the last", ("return names", "return names[-1:]"), says="two names, not 1"),
        Mutant(
            "keeps the first name as parent",
            ("        parent = block_hash(parent,", "        parent = block_hash(names[0] if names else ROOT,"),
            says="the one just before",
        ),
        Mutant(
            "takes the name before the last",
            ("        parent = block_hash(parent,", "        parent = block_hash((names[-2:] or [ROOT])[0],"),
            says="the one just before",
        ),
        Mutant("leaves the last block out", ("len(tokens) // B", "(len(tokens) - 1) // B - 1"), says="two names"),
    ],
    "06.first_mismatch": [
        Mutant("turns the pair round", ("return i // B, i", "return i, i // B"), says="wrong way round"),
        Mutant("gives the index only", ("return i // B, i", "return i"), says="a pair"),
        Mutant(
            "counts within the block", ("return i // B, i", "return i // B, i % B"), says="the place within the block"
        ),
        Mutant("gives a list", ("return i // B, i", "return [i // B, i]"), says="not a list"),
        Mutant("says where the block begins", ("return i // B, i", "return i // B, i // B * B"), says="has index 3"),
        Mutant("takes the token for the block", ("return i // B, i", "return i, i"), says="lies in block 1"),
        Mutant("never finds it", ("if x != y", "if False"), says="no None"),
        Mutant(
            "calls the shorter one different",
            ("return None", "return min(len(a), len(b)) // B, min(len(a), len(b))"),
            says="so None",
        ),
        Mutant("gives the last, not the first", source=LAST, says="the first of them is token 1"),
        Mutant("compares block by block", source=BY_BLOCKS, says="the first of them is token 1"),
        Mutant("calls the longer one different", source=LONGER, says="the beginning of the first"),
        Mutant(
            "looks at full blocks only", ("zip(a, b)", "zip(a[: len(a) // B * B or 1], b)"), says="unfinished block"
        ),
    ],
}

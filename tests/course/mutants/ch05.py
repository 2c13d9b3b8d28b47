"""What goes wrong when a budget is shared out."""

from mutants import Mutant

CHUNK = "count = min(left, budget)"
PROMPTS_FIRST = """
def share(budget, decodes, prompts):
    shares = {}
    for who, left in prompts + [(who, 1) for who in decodes]:
        count = min(left, budget)
        if count:
            shares[who] = count
            budget -= count
    return shares
"""

MUTANTS = {
    "05.share": [
        Mutant("never counts down", ("budget -= count", "pass"), says="what C leaves of the budget"),
        Mutant("gives prompts all they want", (CHUNK, "count = left"), says="first chunk has 6"),
        Mutant("does not chunk", (CHUNK, "count = left if left <= budget else 0"), says="first chunk has 6"),
        Mutant("counts those who get nothing", ("if count:", "if True:"), says="D is not in the step"),
        Mutant("forgets that decodes cost", ("budget -= 1", "pass"), says="two decodes leave 6"),
        Mutant("serves the last in line first", ("left in prompts:", "left in prompts[::-1]:"), says="what C leaves"),
        Mutant("prompts come first", source=PROMPTS_FIRST, says="two decodes leave 6"),
    ],
}

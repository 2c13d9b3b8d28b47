"""What goes wrong when a budget is shared out."""

from mutants import Mutant

MUTANTS = {
    "05.share": [
        Mutant("never counts down", ("            shares[who] = count\n            budget -= count", "            shares[who] = count"), says="what C leaves of the budget"),
        Mutant("gives prompts all they want", ("count = min(left, budget)", "count = left"), says="first chunk has 6"),
        Mutant("does not chunk", ("count = min(left, budget)", "count = left if left <= budget else 0"), says="first chunk has 6"),
        Mutant("counts those who get nothing", ("if count:", "if True:"), says="D is not in the step"),
        Mutant("forgets that decodes cost", ("            shares[who] = 1\n            budget -= 1", "            shares[who] = 1"), says="two decodes leave 6"),
        Mutant("serves the last in line first", ("for who, left in prompts:", "for who, left in prompts[::-1]:"), says="what C leaves"),
        Mutant("prompts come first", source='''
def share(budget, decodes, prompts):
    shares = {}
    for who, left in prompts + [(who, 1) for who in decodes]:
        count = min(left, budget)
        if count:
            shares[who] = count
            budget -= count
    return shares
''', says="two decodes leave 6"),
    ],
}

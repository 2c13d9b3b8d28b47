"""What goes wrong in a limit, and in a list of sizes."""

from mutants import Mutant

WHOLE = "(weights + batch * context * kv) / bandwidth"

MUTANTS = {
    "09.decode_bound": [
        Mutant("forgets the weights", (WHOLE, "batch * context * kv / bandwidth"), says="the weights are missing"),
        Mutant("forgets K and V", (WHOLE, "weights / bandwidth"), says="K and V of the requests are missing"),
        Mutant("reads one context for all", ("batch * context", "context"), says="times batch"),
        Mutant("reads one token's K and V", ("batch * context", "batch"), says="every token of the context"),
        Mutant("reads the weights for each", ("(weights +", "(batch * weights +"), says="once for all requests"),
        Mutant("gives bytes", (" / bandwidth", ""), says="those are bytes"),
        Mutant("takes the larger", (WHOLE, "max(weights, batch * context * kv) / bandwidth"), says="Add them"),
        Mutant("counts K and V apart", ("context * kv)", "context * 2 * kv)"), says="do not count them twice"),
        Mutant("gives milliseconds", (WHOLE, f"1000 * {WHOLE}"), says="the answer is in seconds"),
        Mutant("returns nothing", ("return ", ""), says="is a `return` missing?"),
        Mutant(
            "forgets the brackets", (WHOLE, "weights + batch * context * kv / bandwidth"), says="brackets are missing"
        ),
        Mutant("rounds to seconds", (" / bandwidth", " // bandwidth"), says="do not round"),
        Mutant("computes with other numbers", (" / bandwidth", " / 4.574e12"), says="compute with the arguments"),
        Mutant("gives a rate", (WHOLE, "bandwidth / (weights + batch * context * kv)"), says="that is a rate"),
    ],
    "09.graph_sizes": [
        Mutant("ends at a round number", ("+ [most]", ""), says="most=20: no graph for"),
        Mutant("goes beyond the limit", ("+ [most]", "+ [most + 8]"), says="can never be full"),
        Mutant(
            "has a graph for each",
            ("[1, 2, 4, *range(8, most, 8)]", "range(1, most)"),
            says="each is captured at the start",
        ),
        Mutant(
            "has one graph only",
            ("[size for size in [1, 2, 4, *range(8, most, 8)] if size < most] + [most]", "[most]"),
            says="mostly padding",
        ),
        Mutant(
            "pads one request to 16",
            ("[1, 2, 4, *range(8, most, 8)]", "range(16, most, 16)"),
            says="1 request in a graph of 16",
        ),
        Mutant(
            "names halves of requests",
            source="def graph_sizes(most): return sorted(most / 2**k for k in range(10) if most / 2**k >= 1)",
            says="no whole number of requests",
        ),
        Mutant("names sizes twice", ("+ [most]", "+ [most, most]"), says="each size once"),
        Mutant("starts at none", ("[1, 2, 4,", "[0, 1, 2, 4,"), says="a graph for 0"),
    ],
}

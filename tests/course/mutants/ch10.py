"""What goes wrong in a leak detector, a detective, and a patient of one's own."""

from mutants import Mutant

MUTANTS = {
    "10.leaks": [
        Mutant("finds every held block", ("if refs[block] > owned[block]", "if refs[block]"), says="A explains both"),
        Mutant(
            "looks for blocks in no table",
            (
                "return {block: refs[block] - owned[block] for block in range(len(refs)) if refs[block] > owned[block]}",
                "return {block: refs[block] for block in range(len(refs)) if refs[block] and not owned[block]}",
            ),
            says="two are lost",
        ),
        Mutant(
            "forgets who shares",
            (
                "Counter(block for table in tables.values() for block in table)",
                "Counter({block for table in tables.values() for block in table})",
            ),
            says="block 0 is in two tables",
        ),
        Mutant(
            "finds differences of both kinds",
            ("if refs[block] > owned[block]", "if refs[block] != owned[block]"),
            says="fewer references",
        ),
        Mutant("names those that lost none", (" if refs[block] > owned[block]", ""), says="leave out the blocks"),
        Mutant("gives all references", ("refs[block] - owned[block] for", "refs[block] for"), says="two are lost"),
        Mutant("finds none", source="def leaks(refs, tables):\n    return {}", says="still has a reference"),
        Mutant("gives the blocks alone", source="def leaks(refs, tables):\n    return [2]", says="give a dict"),
        Mutant("returns nothing", source="def leaks(refs, tables):\n    pass", says="`return` missing"),
    ],
    "10.detective": [
        Mutant("makes every test", source="""
def detective(case):
    for test in ("audit", "leaks", "tables", "nan", "inexact", "whole hits"):
        case.test(test)
    signs = case.signs
    if signs.error:
        return "whole-prompt-hit" if case.test("whole hits") else "borrowed-block"
    if signs.unlike:
        if case.test("tables"):
            return "stale-table"
        return "unmasked-tail" if case.test("nan") else "half-precision-sum"
    if signs.waiting:
        return "leak"
    if signs.lost > 0.25:
        return "ping-pong"
    if signs.worst_wait > 10 * signs.median_wait:
        return "starvation"
    if signs.in_use < 0.5:
        return "huge-blocks"
    if signs.blocks > 100:
        return "tiny-blocks"
    return "small-pool" if signs.hits_early > 0 else "dynamic-prompt"
""", says="let the signs decide"),
        Mutant("never looks at text", ("if signs.unlike:", "if signs.unlike is None:"), says="patient 5 has stale-table"),
        Mutant("takes a leak for a small pool", ('return "leak"', 'return "small-pool"'), says="patient 2 has leak"),
        Mutant("mixes shares and percent up", ("lost > 0.25", "lost > 25"), says="patient 11 has ping-pong"),
        Mutant("invents a cause", ('return "leak"', 'return "flu"'), says="for patient 2 you say 'flu'"),
        Mutant("knows the beds", ("signs = case.signs", "signs = case.signs; case.number"), says="no attribute 'number'"),
        Mutant("returns nothing for some", ('return "leak"', "pass"), says="patient 2 has leak"),
        Mutant("returns nothing at all", source='def detective(case):\n    case.signs', says="is a `return` missing?"),
        Mutant("says the same to all", source='def detective(case):\n    return "leak"', says="1 of 12 found"),
        Mutant(
            "mixes both hit rates up",
            (
                'return "small-pool" if signs.hits_early > 0 else "dynamic-prompt"',
                'return "dynamic-prompt" if signs.hits_early > 0 else "small-pool"',
            ),
            says="patient 1 has dynamic-prompt",
        ),
    ],
    "10.patient": [
        Mutant("is never cured", ("Engine(config) if self.cured else ", ""), says="cured, it should be well"),
        Mutant("is never ill", (", policy=Newest())", ")"), says="no instrument shows anything"),
        Mutant("names another instrument", ('instrument = "overtaken"', 'instrument = "leaks"'), says="'leaks' is silent"),
        Mutant("names all instruments to be safe",
               ('instrument = "overtaken"', 'instrument = "overtaken"\n    also = ("leaks", "audit")'), says="that is silent"),
        Mutant("invents an instrument", ('instrument = "overtaken"', 'instrument = "X-ray"'), says="allowed: audit"),
        Mutant("has hardly any traffic", ("range(100)", "range(10)"), says="More traffic"),
        Mutant("has its traffic too late", ("Visit(1 + 3", "Visit(999 + 3"), says="does not answer everybody within 600"),
        Mutant("builds nothing", ("return Engine(config) if", "Engine(config) if"), says="`build` gave None"),
        Mutant("has no traffic", ("range(100)", "range(0)"), says="nobody visits"),
        Mutant("says nothing", ('cure = "First come, first served."', 'cure = ""'), says="say its cure"),
        Mutant("gives an instance", source="Mine = 3", says="a subclass of Patient"),
    ],
}  # fmt: skip

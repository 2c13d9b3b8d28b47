"""What goes wrong with heads and ranks, and in a router."""

from mutants import Mutant

REFUSE = """    if kv_heads % ranks and ranks % kv_heads:
        raise ValueError(f"{ranks} ranks cannot share {kv_heads} KV heads")
"""
CHOICE = "return max(free, key=lambda n: (replicas[n].match(prompt), -replicas[n].load))"
FREE = "free = [n for n in range(len(replicas)) if replicas[n].load <= least + 4]"

MUTANTS = {
    "11.kv_heads": [
        Mutant("leaves ranks without a head", ("max(1, kv_heads // ranks)", "kv_heads // ranks"), says="a copy of one"),
        Mutant("counts the copies", ("max(1, kv_heads // ranks)", "max(kv_heads // ranks, ranks // kv_heads)"),
               says="hold a copy of each head"),
        Mutant("gives all heads to all", ("max(1, kv_heads // ranks)", "kv_heads"), says="a rank has its share"),
        Mutant("divides into fractions", ("kv_heads // ranks", "kv_heads / ranks"), says="divide with //"),
        Mutant("returns nothing", ("return max(1", "max(1"), says="is a `return` missing?"),
        Mutant("takes any numbers", (REFUSE, ""), says="raise a ValueError"),
        Mutant("refuses copies", (" and ranks % kv_heads", ""), says="you refused them"),
        Mutant("refuses by comparing", ("kv_heads % ranks and ranks % kv_heads", "ranks > kv_heads"),
               says="you refused them"),
        Mutant("asks for a power of two", ("kv_heads % ranks and ranks % kv_heads", "ranks & ranks - 1 and ranks != kv_heads"),
               says="6 KV heads on 3 ranks work"),
        Mutant("raises something else", ("raise ValueError", "raise Exception"), says="make it a ValueError"),
        Mutant("takes more ranks than fit", ("ranks % kv_heads:", "ranks < kv_heads:"), says="8 KV heads on 12 ranks"),
    ],
    "11.route": [
        Mutant("goes by load alone", (CHOICE, "return min(free, key=lambda n: replicas[n].load)"), says="ask match"),
        Mutant("goes by the number of tokens", (CHOICE, "return len(prompt) % len(replicas)"), says="ask match"),
        Mutant("takes who knows least", ("return max(free", "return min(free"), says="ask match"),
        Mutant("takes the first of equals", (", -replicas[n].load))", ", 0))"), says="of equals, take the least loaded"),
        Mutant("forgets the load", (FREE, "free = range(len(replicas))"), says="leave out whoever is overloaded"),
        Mutant("gives up at the first difference", ("least + 4", "least"), says="no reason to pass it over"),
        Mutant("goes by the beginning of the prompt", (CHOICE, "return sum(prompt[:16]) % len(replicas)"),
               says="leave out whoever is overloaded"),
        Mutant("leaves one out", ("least = min(", "replicas = replicas[:3]\n        least = min("),
               says="1 replica never got a call"),
        Mutant("gives the replica itself", (CHOICE, CHOICE.replace("return ", "return replicas[") + "]"),
               says="a whole number from 0 to 3"),
        Mutant("returns nothing", (CHOICE, CHOICE.removeprefix("return ")), says="from 0 to 3; is a `return` missing?"),
        Mutant("mistypes a name", ("match(prompt)", "match(promt)"), says="'promt' is not defined (line 4 of `route`"),
        Mutant("gives an instance", source="Mine = object()", says="give the class itself"),
        Mutant("has no route", ("def route(", "def send("), says="it lacks route"),
    ],
}  # fmt: skip

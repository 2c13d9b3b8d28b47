"""What goes wrong in a choice, and in a policy."""

from mutants import Mutant

AGEING = """        if tick - oldest.arrived_tick > 100:
            return oldest
"""
FOR_STRANGERS = """
class Mine:
    def pick(self, waiting, cache, tick):
        for request in waiting:
            if not cache.match(request) and tick - request.arrived_tick > 100:
                return request
        return max(waiting, key=lambda request: (len(cache.match(request)), request.arrival))

    def victim(self, running):
        return running[-1]
"""

MUTANTS = {
    "08.config": [
        Mutant("spends too much", ("num_blocks=256", "num_blocks=512"), says="you have 4,096"),
        Mutant(
            "takes large blocks",
            ("block_size=16, num_blocks=256", "block_size=128, num_blocks=32"),
            says="smaller blocks find more",
        ),
        Mutant(
            "takes tiny blocks",
            ("block_size=16, num_blocks=256", "block_size=4, num_blocks=1024"),
            says="larger blocks",
        ),
        Mutant("leaves memory unused", ("num_blocks=256", "num_blocks=170"), says="use all the memory"),
        Mutant(
            "takes blocks that are a little too large",
            ("block_size=16, num_blocks=256", "block_size=48, num_blocks=85"),
            says="smaller blocks find more",
        ),
        Mutant("keeps half of it back", ("num_blocks=256", "num_blocks=256, watermark=0.5"), says="holds it back"),
        Mutant(
            "switches the cache off",
            ("num_blocks=256", "num_blocks=256, enable_prefix_caching=False"),
            says="leave it on",
        ),
        Mutant("gives one seat", ("num_blocks=256", "num_blocks=256, max_num_seqs=1"), says="wait for a seat"),
        Mutant(
            "gives tiny steps",
            ("num_blocks=256", "num_blocks=256, max_num_batched_tokens=64"),
            says="their share of a step",
        ),
        Mutant("leaves the pool open", (", num_blocks=256", ""), says="say how many blocks"),
        Mutant("gives a number", source="config = 16", says="give an EngineConfig"),
    ],
    "08.policy": [
        Mutant("lets nobody age", (AGEING, ""), says="let them age"),
        Mutant(
            "takes the oldest",
            (
                "return max(waiting, key=lambda request: (len(cache.match(request)), -request.arrival))",
                "return waiting[0]",
            ),
            says="not a fifth better",
        ),
        Mutant("takes who has least to reuse", ("return max(", "return min("), says="not a fifth better"),
        Mutant(
            "takes the request out itself",
            ("return oldest", "return waiting.pop(0)"),
            says="changed the list of waiting",
        ),
        Mutant("ages too slowly", ("> 100", "> 5000"), says="let them age"),
        Mutant("thinks of strangers only", source=FOR_STRANGERS, says="let them age"),
        Mutant("gives a place in the line", ("return oldest", "return 0"), says="not waiting"),
        Mutant("gives an instance", source="Mine = object()", says="give the class itself"),
        Mutant("has no victim", ("def victim(", "def prey("), says="it lacks victim"),
    ],
}

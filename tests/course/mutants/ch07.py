"""What goes wrong in a queue of blocks, and in an order of one's own."""

from mutants import Mutant

A_DICT = """
class Queue:
    def __init__(self):
        self.order = {}

    def insert(self, block):
        self.order[block] = None

    def remove(self, block):
        del self.order[block]

    def pop(self):
        block = next(iter(self.order))
        del self.order[block]
        return block

    def __len__(self):
        return len(self.order)

    def __iter__(self):
        return iter(self.order)
"""

LISTED = """
class Queue:
    def __init__(self):
        self.order = []

    def insert(self, block):
        self.order.append(block)

    def remove(self, block):
        self.order.remove(block)

    def pop(self):
        return self.order.pop(0)

    def __len__(self):
        return len(self.order)

    def __iter__(self):
        return iter(self.order)
"""

LEAST_OFTEN = """
class Mine:
    def __init__(self):
        self.order, self.hits = {}, {}

    def insert(self, block):
        self.order[block] = None

    def remove(self, block):
        self.hits[block] = self.hits.get(block, 0) + 1
        del self.order[block]

    def pop(self):
        block = min(self.order, key=lambda block: self.hits.get(block, 0))
        del self.order[block]
        self.hits.pop(block, None)
        return block

    def __len__(self):
        return len(self.order)

    def __iter__(self):
        return iter(self.order)
"""
MUTANTS = {
    "07.queue": [
        Mutant("is a list, which searches", source=LISTED, says="that is a search"),
        Mutant("is a dict, which steps over what is gone", source=A_DICT, says="pop takes longer"),
        Mutant(
            "searches before it inserts",
            ("self.order[block] = None", "self.order |= {} if block in list(self.order) else {block: None}"),
            says="inserting one of 2,000 blocks compares",
        ),
        Mutant(
            "copies all to take one",
            (
                "return self.order.popitem(last=False)[0]",
                "block = list(self.order)[0]; del self.order[block]; return block",
            ),
            says="it walks through them",
        ),
        Mutant(
            "counts one by one",
            ("return len(self.order)", "return sum(1 for _ in self.order)"),
            says="it walks through them",
        ),
        Mutant("takes from the back", ("last=False", "last=True"), says="from the front"),
        Mutant("does not give the block back", ("return self.order", "self.order"), says="gives the block back"),
        Mutant(
            "leaves what it popped",
            ("self.order.popitem(last=False)[0]", "next(iter(self.order))"),
            says="are gone",
        ),
        Mutant(
            "does not remove",
            ("        del self.order[block]\n\n    def pop", "        pass\n\n    def pop"),
            says="was removed",
        ),
        Mutant(
            "joins at the front",
            ("self.order[block] = None", "self.order = OrderedDict({block: None, **self.order})"),
            says="read like that",
        ),
        Mutant("gives an instance", source="Queue = dict()", says="give the class itself"),
    ],
    "07.eviction": [
        Mutant(
            "is LRU",
            ("queue = self.once or self.again\n        block", "queue = self.again or self.once\n        block"),
            says="less than LRU",
        ),
        Mutant("forgets who was hit", ("self.hit.add(block)", "pass"), says="no better"),
        Mutant("counts how often each was hit", source=LEAST_OFTEN, says="what is young may be needed next"),
        Mutant("counts only one queue", ("len(self.once) + len(self.again)", "len(self.once)"), says="but len is"),
        Mutant("lacks a method", ("def remove(", "def take_out("), says="lacks remove"),
    ],
}

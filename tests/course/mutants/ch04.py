"""What goes wrong in online softmax."""

from mutants import Mutant

MASKED = "V + at, mask=valid[:, None], other=0.0"
VALUES = "tl.sum(p[:, None] * v, axis=0)"

MUTANTS = {
    "04.online_softmax": [
        Mutant("shrinks the wrong way", ("tl.exp(m - m2)", "tl.exp(m2 - m)"), says="wrong way round"),
        Mutant("shrinks nothing", ("tl.exp(m - m2)", "1.0"), says="nothing shrinks"),
        Mutant("shrinks only the output", ("a * l + ", "l + "), says="l must shrink too"),
        Mutant("shrinks only the sum", ("a * acc + ", "acc + "), says="acc must shrink too"),
        Mutant("forgets the weights", (VALUES, "tl.sum(v, axis=0)"), says="without their weights"),
        Mutant("sums everything", (VALUES, "tl.sum(p[:, None] * v)"), says="over the slots only, axis=0"),
        Mutant("keeps only the last page's sum", ("a * l + ", ""), says="l forgets the pages before"),
        Mutant("divides page by page", (VALUES, f"{VALUES} / tl.sum(p, axis=0)"), says="divide once"),
        Mutant("begins at a maximum of zero", ('float("-inf"), 0.0', "0.0, 0.0"), says="never falls"),
        Mutant(
            "takes each page's own maximum",
            ("tl.maximum(m, tl.max(s, axis=0))", "tl.max(s, axis=0)"),
            says="never falls",
        ),
        Mutant("forgets the pages before", ("tl.exp(m - m2)", "0.0"), says="only the last page counts"),
        Mutant("is right for three pages", ("tl.exp(m - m2)", "tl.exp(m - m2) * (j < 3)"), says="seven pages"),
        Mutant("stops after three pages", ("tl.cdiv(n, B)", "tl.minimum(tl.cdiv(n, B), 3)"), says="seven pages"),
        Mutant("reads a page too many", ("tl.cdiv(n, B)", "tl.cdiv(n, B) + 1"), says="outside"),
        Mutant(
            "takes a number from the notebook",
            source="""
HALF = 0.5
@triton.jit
def mine(q, K, V, out, tables, lens, W, G, H, D: tl.constexpr, B: tl.constexpr):
    query = tl.load(q + tl.arange(0, D)) * HALF
""",
            says="HALF: defined outside the kernel",
        ),
        Mutant("stores nothing", ("tl.store(out + mine, acc / l)", "acc / l"), says="are never stored"),
        Mutant(
            "stores where another row does",
            ("(row * H * G + head) * D + d", "(row * H + head) * D + d"),
            says="are never stored",
        ),
        Mutant("does not mask V", (MASKED, "V + at"), says="is read unmasked"),
        Mutant("forgets that heads share keys", ("head // G", "head"), says="share one"),
        Mutant("weighs along the wrong axis", ("p[:, None] * v", "p[None, :] * v"), says="in the line: acc = "),
        Mutant("takes Python's exp", ("tl.exp(m - m2)", "math.exp(m - m2)"), says="lanes of a kernel; write tl.exp"),
        Mutant("gives its name", source="mine = 'online softmax'", says="under @triton.jit"),
    ],
}

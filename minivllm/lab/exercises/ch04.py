"""Chapter 04: three lines of online softmax in Triton, on hidden shapes, in pools full of NaN, every address checked."""

import ast
from typing import Any, NamedTuple

import torch

from minivllm.kernels import reference
from minivllm.kernels.launch import INTERPRETED
from minivllm.lab.grading import NotAttempted, Wrong, exercise, require
from minivllm.lab.kernel_trace import OutOfBounds, check_bounds
from minivllm.lab.paged_kernel import Call, call, paged, source_of, variant

TOLERANCE = 1e-4


class Case(NamedTuple):
    """Lengths of the requests, query and key heads, numbers per head, block size; `lift`: added to scores, page by page."""

    words: str
    lens: tuple[int, ...]
    heads: tuple[int, int]
    dim: int
    size: int
    lift: float


CASES = (
    Case("a single page", (3,), (1, 1), 8, 4, 0.0),
    Case("three pages whose scores rise", (12,), (1, 1), 8, 4, 2.0),
    Case("three pages whose scores fall", (12,), (1, 1), 8, 4, -2.0),
    Case("three pages whose scores lie far below zero, and fall", (12,), (1, 1), 8, 4, -500.0),
    Case("ragged requests of 1, 4, 5 and 11 tokens", (1, 4, 5, 11), (2, 1), 16, 4, 0.5),
    Case("4 query heads on 2 key heads", (7, 9), (4, 2), 8, 8, 0.5),
    Case("3 query heads on 3 key heads, blocks of 16", (20,), (3, 3), 32, 16, 0.0),
    Case("seven pages whose scores rise, the last one half full", (26, 3), (2, 1), 8, 4, 0.5),
    Case("nine pages of any scores", (36,), (2, 2), 8, 4, 0.0),
)
UNWRITTEN = 1e9  # what `out` holds before the kernel runs
MISTAKES = (
    (("tl.exp(m - m2)", "tl.exp(m2 - m)"), "a is the wrong way round: it must be at most 1, since the maximum can only rise"),
    (("tl.exp(m - m2)", "1.0"), "nothing shrinks: what was summed under a smaller maximum must be multiplied by exp(m - m2)"),
    (("tl.exp(m - m2)", "0.0"), "only the last page counts: what was summed before shrinks by exp(m - m2), and stays"),
    (("a * l +", "l +"), "l must shrink too, by the same a as acc"),
    (("a * acc +", "acc +"), "acc must shrink too, by the same a as l"),
    (("tl.sum(p[:, None] * v, axis=0)", "tl.sum(v, axis=0)"), "the values are summed without their weights p"),
    (("l = a * l + tl.sum(p, axis=0)", "l = tl.sum(p, axis=0)"), "l forgets the pages before: a * l, plus this page's weights"),
    (("acc = a * acc + tl.sum", "acc = tl.sum"), "acc forgets the pages before: a * acc, plus this page's weighted values"),
    (("tl.sum(p[:, None] * v, axis=0)", "tl.sum(p[:, None] * v, axis=0) / tl.sum(p, axis=0)"),
     "each page is divided by its own weights: divide once, at the end"),
    (("tl.sum(p[:, None] * v, axis=0)", "tl.sum(p[:, None] * v)"),
     "the weighted values are summed into one number: acc keeps one for each d, so sum over the slots only, axis=0"),
    (("head // G", "head"), "every query head reads a key head of its own; G query heads share one, head // G"),
)  # fmt: skip
"""Pieces of the right kernel, what people write instead, and what to tell them."""


def stage(case: Case, seed: int) -> Call:
    """A launch for a case: scattered blocks, NaN in every slot that is nobody's, nonsense in the tables past the end."""
    draw = torch.Generator().manual_seed(seed)
    q_heads, kv_heads = case.heads
    needed = [-(-n // case.size) for n in case.lens]
    order = torch.randperm(sum(needed), generator=draw).tolist()
    q = torch.randn(len(case.lens), q_heads, case.dim, generator=draw)
    kv = torch.full((2, sum(needed), case.size, kv_heads, case.dim), torch.nan)
    tables = torch.full((len(case.lens), max(needed) + (len(needed) > 1)), 10_000_019, dtype=torch.int32)
    for row, n in enumerate(case.lens):
        for at in range(n):
            if at % case.size == 0:
                tables[row, at // case.size] = order.pop()
            slot = kv[:, tables[row, at // case.size], at % case.size]
            slot.copy_(torch.randn(slot.shape, generator=draw))
            slot[0] += case.lift * (at // case.size + 1) * q[row, 0].sign() / case.dim**0.5  # moves this page's scores
    device = "cpu" if INTERPRETED else "cuda"
    lens = torch.tensor(case.lens, dtype=torch.int32)
    made = call(q.to(device), kv.to(device), tables.to(device), lens.to(device))
    made.out.fill_(UNWRITTEN)
    return made


@exercise(
    "04.online_softmax",
    hints=[
        "Everything summed so far used weights exp(s - m). With the new maximum m2 they should have been exp(s - m2). "
        "What is the quotient of the two?",
        "a is that quotient, exp of a difference of maxima, and at most 1. l and acc both shrink by it before this page joins.",
        "a = tl.exp(m - m2); l = a * l + the sum of p; acc = a * acc + the sum over slots of p[:, None] * v (axis=0).",
    ],
)
def online_softmax(student: Any) -> str:
    """A Triton kernel with the parameters of `paged`, right on all `CASES`, within its tensors."""
    kind = type(student).__name__
    require(hasattr(student, "fn"), f"give the kernel itself, a function under @triton.jit, not {kind}")
    nodes = list(ast.walk(ast.parse(source_of(student))))
    named = [node for node in nodes if isinstance(node, ast.Attribute)]
    assigned = [node.value for node in nodes if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)]
    if any(isinstance(value, ast.Constant) and value.value is ... for value in assigned):
        raise NotAttempted
    strange = {node.value.id for node in named if isinstance(node.value, ast.Name)} & {"math", "torch", "np", "numpy"}
    require(
        not strange, f"{', '.join(sorted(strange))} cannot compute with the lanes of a kernel; write tl.exp, tl.sum"
    )
    loaded = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)} | {"tl", "triton"}
    foreign = sorted((loaded - own) & student.fn.__globals__.keys())
    require(
        not foreign,
        f"{', '.join(foreign)}: defined outside the kernel. It is run as a copy of its own source, so write that inside",
    )
    for number, case in enumerate(CASES):
        _judge(student, case, number)
    return f"right on {len(CASES)} hidden shapes, in pools full of NaN, and within its tensors"


def _judge(student: Any, case: Case, seed: int) -> None:
    try:
        check_bounds(student, stage(case, seed))
    except OutOfBounds as stray:
        raise Wrong(f"{case.words}: {stray}") from None
    launch = stage(case, seed)
    got, right = launch.run(student), _truth(launch)
    if bool(torch.allclose(got, right, atol=TOLERANCE)):
        return
    got = _healthy(case, seed).run(student)  # the same pool without its NaN, which would hide every other mistake
    if bool(torch.allclose(got, right, atol=TOLERANCE)):
        raise Wrong(
            f"{case.words}: NaN, but right in a pool of zeros: a slot that is not the request's is read unmasked"
        )
    missing = int((got == UNWRITTEN).sum())
    require(not missing, f"{case.words}: {missing} of the {got.numel()} numbers of `out` are never stored")
    turned = "exp(m2-m)" in source_of(student).replace(" ", "")
    if bool(got.isnan().all()) and not turned:  # 0 / 0 looks like any other NaN: no mistake can be told from it
        raise Wrong(
            f"{case.words}: NaN, even in a pool without any: 0 / 0 if l is still 0 at the end, or inf * 0. m begins at "
            "-inf and never falls; a is exp of a difference, 0 on the first page, and multiplies only what came before it"
        )
    for piece, words in MISTAKES:
        if torch.allclose(got, _healthy(case, seed).run(variant(paged, *piece)), atol=TOLERANCE, equal_nan=True):
            raise Wrong(f"{case.words}: {words}")
    off = float((got - right).abs().max())
    raise Wrong(
        f"{case.words}: off by {off:.2g}. Print m, a and l page by page, as the torch version does, and compare"
    )


def _healthy(case: Case, seed: int) -> Call:
    launch = stage(case, seed)
    for name in ("K", "V"):
        launch.tensors[name].nan_to_num_(0.0)
    return launch


def _truth(launch: Call) -> torch.Tensor:
    t = launch.tensors
    return reference.decode_rows(t["q"], torch.stack((t["K"], t["V"])), t["tables"], t["lens"])

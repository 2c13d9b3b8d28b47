# %% [markdown]
# # 04 · The paged attention kernel
#
# **A kernel reads a scattered text page by page, straight through the block table, and carries three numbers along:
# the largest score, the sum of weights, and the output so far.**
#
# You will be able to
#
# - compute attention over pages in three ways: gathered, page by page in torch, and in Triton;
# - derive the three lines of online softmax, and say what each of them forgets or keeps;
# - read a Triton kernel as one program: which addresses it touches, which lanes are masked;
# - find an access out of bounds, and say what must be masked in a page that is not full, and why;
# - put a kernel of your own into the running engine.
#
# | needs | time | device |
# | --- | --- | --- |
# | chapter 03; softmax | 75 min | CPU (Triton's interpreter) or GPU (compiled), same cells; about 40 seconds of computing |
#
# **How does a kernel read scattered pages?** One could put the pages in a row first, and then attend as always. For 8 requests of
# 1,024 tokens, on one core of the computer that built these pages, that row costs 2 to 9 ms a layer, and the attention
# itself 1 to 2 ms: the copy is more work than the work. Not to make it is what this chapter is about.

# %%
import inspect
import math
import time

import torch

from minivllm.kernels.launch import INTERPRETED  # before triton: without a GPU it has Triton interpret

import triton
import triton.language as tl

# %%
from minivllm import LLM, SamplingParams
from minivllm.kernels import paged_decode, reference
from minivllm.kernels.reference import ReferenceOps, rotate
from minivllm.lab import check, expect, grading, hint, predict, progress, reveal
from minivllm.lab.kernel_trace import OutOfBounds, check_bounds
from minivllm.lab.paged_kernel import attend, call, paged, source_of, variant
from minivllm.lab.scattered import scattered
from minivllm.viz.kernel_stepper import KernelStepper

torch.set_num_threads(1)
device = "cpu" if INTERPRETED else "cuda"

# %% [markdown]
# ## What the copy costs

# %%
rows, length = 8, 1024
kv = torch.randn(2, rows * length // 16, 16, 3, 64, device=device)
tables = torch.randperm(rows * length // 16, device=device).view(rows, -1).int()
positions = torch.arange(length, device=device).expand(rows, length)
queries = torch.randn(rows, 3, 3, 64, device=device)
k, v = (gathered.contiguous() for gathered in reference.gather(kv, tables, positions))
print(f"K and V of these requests, one layer: {k.nbytes + v.nbytes:,} bytes")
print(
    "attention must read them once; gathering reads them, writes them, and attention reads the copy: three times the bytes"
)


# %% tags=["nbval-ignore-output"]
# reason: a measurement
def best(work, times=10):
    def once():
        begin = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    return min(once() for _ in range(times))


copy = best(lambda: reference.gather(kv, tables, positions))
attention = best(lambda: torch.nn.functional.scaled_dot_product_attention(queries, k, v))
print(f"putting the pages in a row {copy * 1e3:.2f} ms, attention itself {attention * 1e3:.2f} ms")

# %%
print("the copy is worth avoiding (more than a fifth of the attention):", copy > attention / 5)

# %% [markdown]
# ## The stage
#
# Request A has 22 tokens in six blocks of 4, scattered over a pool of 24. Every slot that A has not written holds
# NaN, as fresh GPU memory may. Two key heads, four query heads, 8 numbers each: small enough to look at.

# %%
q, kv, tables, lens = scattered(device)
print("q", tuple(q.shape), " kv", tuple(kv.shape), " table of A", tables.tolist()[0], " tokens", lens.item())
owned = [f"{kv[0, 11, slot, 0, 0]:.2f}" for slot in range(4)]
print("block 11, the last of A, first number of each slot:", owned)

# %% [markdown]
# **Predict.** The last two slots of block 11 are NaN. Suppose we give them a score of −∞, so that their softmax
# weight is exactly 0. Then we multiply the weights with the values, masked or not.

# %%
says = ["no, 0 times anything is 0", "yes, it spoils the output"]
predict("04.nan", "Does a NaN in an unused slot matter, if its weight is 0?", choices=says)

# %% [markdown]
# ## First way: gather
#
# Put everything in a row and attend. It copies, but it is easy to trust, so it is our **oracle**:

# %%
print(inspect.getsource(reference.gather))

# %%
truth = reference.decode_rows(q, kv, tables, lens)[0]
print("output", tuple(truth.shape), " finite:", bool(torch.isfinite(truth).all()))
keys, values = reference.gather(kv, tables, torch.arange(24, device=device)[None])  # all 24 slots, two too many
scores = (keys[0, 1] @ q[0, 3]) / math.sqrt(8)
scores[22:] = -math.inf
weights = scores.softmax(-1)
print("weights of the last four slots:", [round(w, 3) for w in weights[20:].tolist()])
spoilt = weights @ values[0, 1]
reveal("04.nan", says[int(spoilt.isnan().any())])

# %% [markdown]
# 0 × NaN is NaN. So whoever reads a slot that is not theirs must mask **V** as well as the scores. (The oracle is finite: it
# never reads those slots.)
#
# ## Second way: page by page
#
# A **page** is what chapter 03 called a logical block: A has six of them. Softmax needs the largest score of *all*
# tokens, and then their sum. A loop over pages has seen only some of them.
# The trick: do as if what we have seen were everything, and when a larger score turns up, shrink what we have summed
# so far. Three numbers go along: `m`, the largest score; `l`, the sum of weights; `acc`, the weighted values.


# %%
def page_by_page(q, kv, table, n, head):
    """One request, one query head: `q [D]`, `kv [2, blocks, B, Hkv, D]` -> `[D]`."""
    size, kv_head = kv.shape[2], head // 2  # two query heads share a key head
    m, l, acc = -math.inf, 0.0, torch.zeros_like(q)
    for j, block in enumerate(table):
        ours = min(size, n - j * size)  # slots of this page that belong to the request
        k, v = kv[:, block, :ours, kv_head]  # [ours, D] each
        s = k @ q / math.sqrt(len(q))
        m2 = max(m, s.max().item())
        a, p = math.exp(m - m2), (s - m2).exp()
        l = a * l + p.sum().item()
        acc = a * acc + p @ v
        m = m2
        print(f"page {j + 1}  block {block:2}  max {m:.2f}  shrink {a:.3f}  sum {l:.2f}")
    return acc / l


ours = page_by_page(q[0, 3], kv, tables.tolist()[0], 22, head=3)
print("equal to the oracle:", torch.allclose(ours, truth[3], atol=1e-5))

# %% [markdown]
# **Look at the column `shrink`**: it is 1 while no larger score turns up, and 0 at the very first page, where there
# is nothing to keep. Everything was multiplied with the weights for a wrong maximum, and `exp(m − m2)` is just what
# turns wrong weights into right ones: exp(s − m) · exp(m − m2) = exp(s − m2).
#
# ## Third way: Triton, one program at a time
#
# A Triton kernel is written for **one program**. Ours takes one request and one query head; the grid starts one for
# each pair. A program works on small arrays of lanes: `slot` (a block's slots) and `d` (a head's numbers). It gets
# pointers, so every address is arithmetic:

# %%
print(source_of(paged))

# %% [markdown]
# The line to understand is `at`. Block `b`, slot by slot, key head `head // G` (that is GQA: G query heads share a
# key head), number by number. And `valid`: which of the page's slots belong to this request. A lane with `mask=False`
# touches no memory and gets `other`.

# %%
computed = attend(paged, q, kv, tables, lens)[0]
print("runs in Triton's interpreter" if INTERPRETED else "compiled for the GPU")
print("equal to the oracle in all four heads:", torch.allclose(computed, truth, atol=1e-5))

# %% [markdown]
# Now step through it. The interpreter runs a kernel as Python, so we can stop after each line and look at every
# variable. (With a GPU the kernel above was compiled; the stepper still uses the interpreter, in a process of its
# own.)

# %%
stepper = KernelStepper(paged)
stepper.page = 6
stepper.back()
stepper.show()

# %% [markdown]
# **On the left** the lines, each beside what it has just made. **On the right** the page: bars up are positive
# numbers, hollow bars down are negative ones. **Below** all scores; the black line is the running maximum.
#
# Press `Home`, then `→` line by line through page 1. Then `l`, and go page by page: watch where the maximum rises,
# and what `shrink` does to `acc`. Then break it: `mask V off`. On which page does the output die, and does it ever
# recover?

# %%
print(f"page {stepper.page}: {stepper.sentence}")
print("scores", [f"{s:.2f}" for s in stepper.values["s"]], " shrink", f"{stepper.values['a']:.3f}")
for fault in ("mask V off", "rescale off", "GQA off"):
    stepper.fault = fault
    print(f"{fault:12} it {stepper.difference}")
stepper.fault, dead = "mask V off", []
for stepper.page in range(1, 7):
    if math.isnan(stepper.values["acc"][0]):
        dead.append(stepper.page)
print("mask V off: the output is NaN after page", *dead)
stepper.fault = ""

# %% [markdown]
# It dies on page 6, the only one with slots that are not A's. It cannot recover: whatever shrinks NaN, or is added to it,
# NaN stays NaN. (With `GQA off`, head 3 reads the keys of the next slot. Behind the last slot of the first page that is
# a block which is nobody's, NaN, so it dies at once.)
#
# ## Exercise: online softmax
#
# Here is the kernel without its heart. Write the three lines: how much shrinks, the new sum, the new output. It will
# be run on other shapes than this one: ragged lengths, one page and many, other head sizes and groups, pools full of
# NaN, and every address it touches is checked. (`W` is the number of entries in a row of `tables`.)


# %%
@triton.jit
def mine(q, K, V, out, tables, lens, W, G, H, D: tl.constexpr, B: tl.constexpr):
    row, head, slot, d = tl.program_id(0), tl.program_id(1), tl.arange(0, B), tl.arange(0, D)
    n, mine = tl.load(lens + row), (row * H * G + head) * D + d
    query = tl.load(q + mine).to(tl.float32) * D**-0.5
    m, l, acc = float("-inf"), 0.0, tl.zeros([D], tl.float32)
    for j in range(tl.cdiv(n, B)):
        b = tl.load(tables + row * W + j).to(tl.int64)
        valid = j * B + slot < n
        at = ((b * B + slot) * H + head // G)[:, None] * D + d
        k = tl.load(K + at, mask=valid[:, None], other=0.0)
        s = tl.where(valid, tl.sum(k * query, axis=1), float("-inf"))
        m2 = tl.maximum(m, tl.max(s, axis=0))
        p = tl.exp(s - m2)
        v = tl.load(V + at, mask=valid[:, None], other=0.0)
        a = ...
        l = ...
        acc = ...
        m = m2
    tl.store(out + mine, acc / l)


# %%
check("04.online_softmax", mine)

# %% [markdown] tags=["solution:04.online_softmax"]
# <details><summary>Solution</summary>
#
# ```python
# @triton.jit
# def mine(q, K, V, out, tables, lens, W, G, H, D: tl.constexpr, B: tl.constexpr):
#     row, head, slot, d = tl.program_id(0), tl.program_id(1), tl.arange(0, B), tl.arange(0, D)
#     n, mine = tl.load(lens + row), (row * H * G + head) * D + d
#     query = tl.load(q + mine).to(tl.float32) * D**-0.5
#     m, l, acc = float("-inf"), 0.0, tl.zeros([D], tl.float32)
#     for j in range(tl.cdiv(n, B)):
#         b = tl.load(tables + row * W + j).to(tl.int64)
#         valid = j * B + slot < n
#         at = ((b * B + slot) * H + head // G)[:, None] * D + d
#         k = tl.load(K + at, mask=valid[:, None], other=0.0)
#         s = tl.where(valid, tl.sum(k * query, axis=1), float("-inf"))
#         m2 = tl.maximum(m, tl.max(s, axis=0))
#         p = tl.exp(s - m2)
#         v = tl.load(V + at, mask=valid[:, None], other=0.0)
#         a = tl.exp(m - m2)
#         l = a * l + tl.sum(p, axis=0)
#         acc = a * acc + tl.sum(p[:, None] * v, axis=0)
#         m = m2
#     tl.store(out + mine, acc / l)
# ```
#
# `a` is at most 1: what was summed under a smaller maximum weighs less now. `l` and `acc` must shrink by the same
# factor, or they no longer belong together. The division comes once, at the end.
#
# </details>

# %% [markdown]
# Stuck? `hint("04.online_softmax")`, then `2` and `3`. The torch version above has the same three lines.
#
# ## Your kernel inside the engine
#
# The engine takes an object with six operations. To try a kernel, subclass an implementation and override one method.
# This one lets everything run as before, and sends each decode through *your* kernel (ours, until yours is right), in
# all thirty layers:

# %%
kernel = mine if grading.grade("04.online_softmax", mine).status == "✓" else paged
print("the engine will decode with", "your kernel" if kernel is mine else "ours")


class MyOps(ReferenceOps):
    calls, worst = 0, 0.0

    def attention(self, qkv, kv_layer, q_norm, k_norm, eps, rope, batch):
        """As before, which also stores the new keys and values; then decodes once more, with the kernel."""
        out = super().attention(qkv, kv_layer, q_norm, k_norm, eps, rope, batch)
        if batch.max_query_len > 1:
            return out  # a prompt
        kv_heads, dim = kv_layer.shape[-2:]
        q = qkv.unflatten(-1, (-1, dim))[:, : -2 * kv_heads]
        q = rotate(q, rope.cos_sin[batch.positions].unsqueeze(1))
        mine = attend(kernel, q, kv_layer, batch.block_tables, batch.context_lens).flatten(1)
        self.calls, self.worst = self.calls + 1, max(self.worst, (mine - out).abs().max().item())
        return mine


# %%
def complete(ops):
    with LLM(
        "packaged", device=device, dtype="float32", num_blocks=256, block_size=4, kernels=ops, enforce_eager=True
    ) as llm:
        greedy = SamplingParams(temperature=0, max_tokens=3)
        return llm.generate("The capital of France is", greedy, use_tqdm=False)[0].outputs[0].text


ops = MyOps()
before, after = complete("reference"), complete(ops)
print(repr(before), "with plain torch;", repr(after), "with the kernel")
print(
    f"the same text: {before == after}; the kernel ran {ops.calls} times, never more than 1e-4 from torch: {ops.worst < 1e-4}"
)

# %% [markdown]
# A kernel of twenty lines, and a real model speaks through it. On a GPU you have just run it compiled; in the
# interpreter it is hundreds of times slower, which is why the engine itself computes with plain torch on a CPU.
#
# ## Break it
#
# `variant` exchanges one piece of a kernel's source. First: V unmasked, in a pool full of NaN.


# %%
def heads_lost(kernel):
    return int(attend(kernel, q, kv, tables, lens)[0].isnan().any(-1).sum())


unmasked = variant(paged, "V + at, mask=valid[:, None], other=0.0", "V + at")
print("V unmasked: heads with NaN:", heads_lost(unmasked), "of 4")
healthy = kv.nan_to_num(0.0)
print(
    "the same kernel in a pool of zeros:",
    torch.allclose(attend(unmasked, q, healthy, tables, lens)[0], truth, atol=1e-5),
)

# %% [markdown]
# That is what makes it dangerous: on a fresh pool of zeros, and with old but finite numbers, nobody notices. One NaN,
# once, and whoever gets that block next is spoilt.
#
# Second: the sums no longer shrink.

# %%
slips = {"acc does not shrink": ("a * acc +", "acc +"), "l does not shrink": ("a * l +", "l +")}
slips["nothing shrinks"] = ("tl.exp(m - m2)", "1.0")
for name, piece in slips.items():
    off = (attend(variant(paged, *piece), q, kv, tables, lens)[0] - truth).abs().max().item()
    print(f"{name:20} wrong by more than 0.01: {off > 0.01}, and finite")

# %% [markdown]
# No NaN, no error, only a slightly different text: the worst kind. And if the maximum comes first, everything is
# right. A test with increasing scores finds it.
#
# Third: a score kept in 16 bits before it is scaled. Every number of q and k is 40, the head has 64 numbers, so q · k
# is 102,400. fp16 ends at 65,504.

# %%
big_q, big_kv = torch.full((1, 1, 64), 40.0, device=device), torch.full((2, 2, 4, 1, 64), 40.0, device=device)
big_kv[1] = torch.arange(1.0, 9.0, device=device).view(2, 4, 1, 1)
five = torch.tensor([[0, 1]], dtype=torch.int32, device=device), torch.tensor([5], dtype=torch.int32, device=device)
late = variant(
    variant(paged, " * D**-0.5", ""), "tl.sum(k * query, axis=1)", "tl.sum(k * query, axis=1).to(tl.float16) * D**-0.5"
)
print("values 1 to 5, all scores equal, so the output is their mean")
print("scores in fp32:", attend(paged, big_q, big_kv, *five)[0, 0, 0].item())
print("scores in fp16:", attend(late, big_q, big_kv, *five)[0, 0, 0].item())

# %% [markdown]
# The score becomes inf, and inf − inf is NaN. Real models do it: rows of “!!!!” after a long fp16 run are the usual
# symptom. So kernels *store* 16 bits, and *sum* and scale in 32.
#
# Fourth: an address that is nobody's. `head // G` finds the key head of a query head. Forget it, as one does when
# every head has its own keys:

# %%
gqa = variant(paged, "head // G", "head")
with expect(OutOfBounds, match="touches 8 addresses outside K"):
    check_bounds(gqa, call(q, kv, tables, lens))
check_bounds(paged, call(q, kv, tables, lens))
print("the kernel as it was touches nothing outside")

# %% [markdown]
# In the middle of the pool it reads the next slot's keys: wrong, but in bounds. Only in the pool's last block it
# leaves the tensor. A GPU would read whatever lies there, or stop with `illegal memory access`, sometimes.
# `check_bounds` runs the kernel in the interpreter and compares every address with its tensor.
#
# > **Checked against the source.** The article's pitfalls, in a kernel: uninitialised block memory becomes NaN unless
# > it is masked: yes, and it is V that must be masked, the scores are not enough. fp16 accumulation overflows, so
# > accumulate in fp32: yes, NaN above. And the kernel it describes, which reads the block table, loads block by
# > block, keeps an online softmax and writes once, is the one you have just completed. What the article leaves out is
# > who writes the *new* token's K and V: that happens before, or in the same kernel, or the newest token cannot see
# > itself.
#
# ## From twenty lines to a fast kernel
#
# The engine's own decode kernel has the same loop. Look for `m`, `l`, `acc`, and for what is different:

# %%
source = inspect.getsource(paged_decode.decode_kernel.fn)
print(source[source.index("    for start in range(") :].split("\n\n")[0])

# %% [markdown]
# Four things make it fast. A program takes a *key* head, and all query heads that share it: K and V are read once for
# all of them, by `tl.dot`. Lanes past the end read the last valid token again and score −∞: an index in place of a
# mask, and just as safe from NaN. The block number of the next tile is loaded one turn early. And a long context is
# cut into pieces that run beside each other. Each leaves its output and the logarithm of its sum; who finishes last
# merges them, as pages are merged.
#
# ## Quiz
#
# **1.** Softmax over 1,000 pages. How much does a program keep from page to page?
#
# <details><summary>Answer</summary>
# Two numbers and one vector: m, l and acc. The scores of a page are forgotten with the page; no score matrix is ever
# stored.
# </details>
#
# **2.** Scores are masked with −∞, V is not. When is the output wrong?
#
# <details><summary>Answer</summary>
# When an unused slot holds NaN or infinity: 0 × NaN is NaN. With finite garbage it is right, which is why it slips
# through tests.
# </details>
#
# **3.** The largest score is in the very first page. Which of the three lines could you leave out, and nobody would
# notice?
#
# <details><summary>Answer</summary>
# The shrinking: a is 1 on every later page. So test with scores that rise.
# </details>
#
# **4.** Two programs finished half a context each. How do you merge (m1, l1, acc1) and (m2, l2, acc2)?
#
# <details><summary>Answer</summary>
# Take the larger maximum, shrink both sides by exp(their m − larger m), add l to l and acc to acc. It is the same
# step, with a page that has been summed already.
# </details>
#
# ## What you have seen
#
# | | |
# | --- | --- |
# | gathering first | reads, writes and reads again: three times the bytes |
# | online softmax | a = exp(m − m2); l = a·l + Σp; acc = a·acc + p·V; divide once |
# | address of a key | ((block · B + slot) · Hkv + head // G) · D + d |
# | a lane that is not ours | masked in K, in the scores *and* in V |
# | sums | fp32, whatever is stored |
# | a missing rescale | finite, wrong, silent |
#
# **How does a kernel read scattered pages?** It looks each page up in the block table, reads it where it lies, and
# never puts anything in a row. Nothing larger than one page is ever held.

# %%
progress("04")

# %% [markdown]
# **Read the real thing.** The kernel of this chapter:
# [`minivllm/lab/paged_kernel.py`](../minivllm/lab/paged_kernel.py); the engine's:
# [`minivllm/kernels/paged_decode.py`](../minivllm/kernels/paged_decode.py) and
# [`pieces.py`](../minivllm/kernels/pieces.py). In vLLM:
# [`vllm/attention/ops/triton_unified_attention.py`](https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/attention/ops/triton_unified_attention.py),
# `kernel_unified_attention_2d`: find `block_tables_ptr`, `m_j`, `alpha` and `acc`. The papers: Kwon et al.
# ([2023](https://arxiv.org/abs/2309.06180), §4.3), Milakov & Gimelshein ([2018](https://arxiv.org/abs/1805.02867))
# for online softmax, Dao et al. ([2022](https://arxiv.org/abs/2205.14135)).
#
# **Next:** [05 · The scheduler](05_scheduler.ipynb) A kernel computes what it is given. Who decides what that is?

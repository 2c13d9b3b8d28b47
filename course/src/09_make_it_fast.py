# %% [markdown]
# # 09 · Make it fast
#
# **A decode step has to read all the weights and all the K and V of its requests. It cannot be faster than that, and
# a fast engine is one that does hardly anything else.**
#
# You will be able to
#
# - compute the least time of a decode step from bytes and bandwidth, for any model and machine;
# - say why a batch is nearly free at first and why that ends;
# - read where the time of a step goes, kernel by kernel;
# - explain what a CUDA graph records, and the two ways to get it wrong;
# - say when planning costs nothing.
#
# | needs | time | device |
# | --- | --- | --- |
# | chapters 01, 04, 05 and 06 | 60 min | CPU; the large GPU's runs are recorded |
#
# **How close to the limit of the hardware are we?** First, this machine. How fast can it read memory, and how many
# tokens per second does it write?

# %%
import statistics
import time

import torch

from minivllm import LLM, SamplingParams
from minivllm.bench import roofline, shapes
from minivllm.bench.shapes import SHAPES
from minivllm.lab import check, hint, predict, progress, reveal
from minivllm.lab.recorded import recorded
from minivllm.model.spec import ModelSpec
from minivllm.runtime.graphs import bucket, decode_sizes
from minivllm.viz import Roofline

torch.set_num_threads(1)

# %%
predict("09.share", "Of the limit that memory sets, how much does our engine reach on this machine?", unit="%")

# %%
llm = LLM("packaged", device="cpu", dtype="float32", num_blocks=64, max_model_len=512)
ceilings = roofline.measure("cpu", torch.float32)
engine, spec = llm.engine, llm.engine.model.spec
engine.add([1] * 40, SamplingParams(temperature=0, max_tokens=50, ignore_eos=True))
engine.step()
times = []
while engine.has_unfinished:
    began = time.perf_counter()
    engine.step()
    times.append(time.perf_counter() - began)
ceilings = max(ceilings, roofline.measure("cpu", torch.float32), key=lambda measured: measured.read)
least = shapes.bytes_of_weights(spec, 4) / ceilings.read
measured = statistics.median(times)

# %% tags=["nbval-ignore-output"]
# reason: every machine has its own speed
print(
    f"memory is read at {ceilings.read / 1e9:.0f} GB/s, the weights are {shapes.bytes_of_weights(spec, 4) / 1e6:.0f} MB"
)
print(
    f"a step takes {1e3 * least:.1f} ms at least, and took {1e3 * measured:.1f}: {1 / measured:.1f} tokens per second"
)
reveal("09.share", round(100 * least / measured), "%")

# %%
print("slower than the limit:", measured > least)

# %% [markdown]
# The **limit** is one division: the bytes that have to be read, by the rate at which memory can be read. It needs no
# model of the processor and no benchmark of somebody else's. The rate was measured just before and just after, in the
# same process. (Only the weights were counted: K and V of one short request are less than a hundredth of them.)
#
# ## A large GPU
#
# Now the model that everybody measures with, Qwen3-0.6B, on an NVIDIA H200. You need not have one: what follows is a
# run of this engine that was recorded. (The model had its shape and random weights: bytes are as many, whatever they
# say.) A **FLOP** is one multiplication or one addition; a TFLOP/s is a million millions of them in a second.

# %%
run = recorded("h200-engine")
print(run.source)
(rates,) = run.of("ceilings")
bandwidth, compute = 1e9 * rates["read GB/s"], 1e12 * rates["matmul TFLOP/s"]
qwen = ModelSpec.from_hf(SHAPES["qwen3-0.6b"])
weights, kv, flops = shapes.bytes_of_weights(qwen), shapes.kv_bytes(qwen), shapes.flops_per_token(qwen)
print(f"read {bandwidth / 1e12:.2f} TB/s, multiply {compute / 1e12:.0f} TFLOP/s")
print(f"weights {weights / 1e9:.3f} GB, K and V {kv:,} bytes per token")

# %%
predict("09.one", "One request, 640 tokens of context: tokens per second at most?", unit="tokens per second")

# %%
predict("09.many", "And 256 such requests, all together?", unit="tokens per second")


# %%
def limit(batch, context=640):
    """Seconds that a step takes at least: weights once, K and V of every request."""
    return (weights + batch * context * kv) / bandwidth


reveal("09.one", 1 / limit(1), "tokens per second")
reveal("09.many", 256 / limit(256), "tokens per second")
print("requests   weights     K and V   least ms    recorded   of the limit")
for row in run.of("decode step"):
    batch, least = row["batch"], 1e3 * limit(row["batch"])
    read = f"{weights / 1e9:6.2f} GB {batch * 640 * kv / 1e9:8.2f} GB"
    print(f"{batch:8} {read} {least:10.3f} {row['ms']:11.3f} {100 * least / row['ms']:12.0f} %")

# %% [markdown]
# **Look at the second and third columns.** With one request nearly everything that is read is weights. With 256,
# nearly everything is K and V. In between lies what a batch is good for: sixteen requests cost less than twice what
# one costs, as they all use the same weights. But each brings K and V of its own, and those are read for it alone.
# The more there are, the nearer it comes to twice the requests, twice the time.
#
# ## The roof
#
# There are two limits: memory, and arithmetic. Which one counts depends on how much is computed with each byte that
# is read. Draw both on paper that is logarithmic, and they are a slope and a flat roof:

# %%
steps = [(row["batch"], row["context"], row["ms"]) for row in run.of("decode step")]
busy = next(row["gpu ms"] for row in run.of("step") if row["batch"] == 64)
attention = 4 * qwen.num_layers * qwen.num_heads * qwen.head_dim  # FLOP per token, for each token of its context
head = 2 * qwen.vocab_size * qwen.hidden_size  # the output layer: for each token of a decode, for a prompt's last
roof = Roofline(
    weights, kv, flops + head, bandwidth=bandwidth, compute=compute, attention=attention, head=head, measured=steps,
    prefill=(1530, 1500), steps=(busy, 0.34), source=run.source, title="Roofline of one H200, Qwen3-0.6B",
)  # fmt: skip
roof.show()

# %%
print(roof.sentence)

# %% [markdown]
# **Move the point to the right** with the slider for requests: it climbs the slope and never reaches the *ridge*,
# where slope and roof meet. However many requests there are, each token of context is read and used for one of them
# alone. From some sixty tokens of context on, this model's decoding is bound by memory, whatever the batch. **Look at
# the filled diamond**: a prompt of 1530 tokens stands on the flat roof, since nearly every weight that is read is used
# 1530 times. If 1500 of them are found in the cache, it slides down to the open diamond on the slope: a prefix hit
# turns a prefill into something like a decode step.

# %% [markdown]
# Is that a law? No. What a request brings along is arithmetic for one token, and K and V to read for all of its
# context. A large model does much of the former, and has few KV heads for its size. 32 billion parameters, 262,144 bytes of K and
# V per token:

# %%
big = Roofline(65.5e9, 262_144, 65.5e9, bandwidth=bandwidth, compute=compute, batch=256, context=640)
print(big.sentence)

# %%
predict("09.hit", "A prompt of 1500 shared and 30 own tokens, cold and warm: how many times faster warm?", unit="times")

# %%
first = run.of("time to first token")
print("prompts at once   cold ms   warm ms   times")
for row in first:
    if row["shared"] == 1500:
        print(f"{row['prompts']:15} {row['cold ms']:9.1f} {row['warm ms']:9.1f} {row['cold ms'] / row['warm ms']:7.1f}")
reveal("09.hit", round(first[0]["cold ms"] / first[0]["warm ms"], 1), "times")

# %% [markdown]
# > **Checked against the source.** The article measured 280 ms cold and 12 ms warm. Here a cold prefill of the same
# > length takes 5 ms, since the card is fast and the model small. The picture allows 7 times, from 2.1 to 0.3. What
# > is left at 2 ms is what does not shrink: launching, planning, many small kernels. Many prompts at once share that
# > (the cold ones begin differently, each in its own way), and warm is 8 or 10 times as fast. With 128, what is left is
# > largely the **host**, the CPU that runs Python beside the GPU: it has each of them to check, to name and to admit.
# > On the two cores of a CPU, where a prefill takes seconds, chapter 06 gives 21 times. The gain is what a prefill
# > costs *you*, less what a step costs anyhow.
#
# ## Where does the rest go?
#
# One request reaches a third of its limit, 256 reach three quarters. The recording says which kernels ran, and for
# how long:

# %%
NAMES = {
    "one_row": "matrix products", "few_rows": "matrix products", "nvjet": "matrix products", "decode_kernel": "attention",
    "norm": "norms", "silu": "activation", "chunk": "sampling", "pick": "sampling",
}  # fmt: skip


def shares(batch):
    """Milliseconds of a step by what they were spent on, and how many kernels that were."""
    rows, spent = run.rows, {}
    end = next(i for i, row in enumerate(rows) if row.get("what") == "step" and row["batch"] == batch)
    begin = max(i for i in range(end) if rows[i]["what"] != "kernel")
    for row in rows[begin + 1 : end]:
        what = next((words for piece, words in NAMES.items() if piece in row["name"]), "everything else")
        ms, calls = spent.get(what, (0, 0))
        spent[what] = ms + row["ms per step"], calls + row["calls"]
    return spent


# %%
for batch in (1, 64, 256):
    print(f"{batch} requests, {sum(calls for _, calls in shares(batch).values())} kernels")
    for what, (ms, calls) in sorted(shares(batch).items(), key=lambda item: -item[1][0]):
        print(f"{ms:10.2f} ms in {calls:3}  {what}")
print(f"matrix products at least {1e3 * weights / bandwidth:.2f} ms, attention of one request", end=" ")
print(f"{1e3 * 640 * kv / bandwidth:.3f} ms, of 256 {1e3 * 256 * 640 * kv / bandwidth:.2f} ms")

# %% [markdown]
# (Added up this is more than a step takes: a kernel may begin while the one before it ends, and that time is counted
# for both.)
#
# At one request, 113 matrix products, four in each of 28 layers and the output layer, share 0.56 ms: five millionths of
# a second each. Reading their weights would take 0.26 in all. Attention takes 0.24 ms for what could be read in 0.016:
# nine millionths of a second for each layer. Kernels so short spend most of their time on starting and stopping. At 256
# requests, attention is four fifths of everything, and needs 4.62 ms where 4.14 are possible: 90 %. The large numbers
# are near the limit. What is far from it is *small*.
#
# ## Launching costs more than computing
#
# So a step of one request is some 200 kernels of four microseconds each. And each has to be ordered by the host. If
# the host takes longer over an order than the GPU over the kernel, the GPU waits after every one of them; if it takes
# ten times as long, the GPU waits nearly all the time. A
# **CUDA graph** records the whole step once, and is then launched as one. What does it record? Not the values, and
# not the Python: the *addresses*. Like this:

# %%
tokens, answer = torch.tensor([1, 2, 3]), torch.zeros(3, dtype=torch.int64)


def capture(source, target):
    """What a recording amounts to: these two places in memory, whatever you call them later."""
    return lambda: target.copy_(2 * source)


replay = capture(tokens, answer)
tokens.copy_(torch.tensor([10, 20, 30]))  # new values in the old place
replay()
print("overwritten in place:", answer.tolist())

# %%
predict(
    "09.stale",
    "Now `tokens = torch.tensor([7, 7, 7])`, then replay(). What does answer hold?",
    choices=["14s", "the old answer"],
)

# %%
tokens = torch.tensor([7, 7, 7])  # a new place under the old name
replay()
reveal("09.stale", "14s" if answer.tolist() == [14, 14, 14] else "the old answer")
print("a new tensor:", answer.tolist())

# %% [markdown]
# No error: the graph goes on reading where it always read. So in this engine whatever changes from step to step lives
# in buffers that are overwritten and never replaced: tokens, positions, block tables, seeds.
#
# The second way to get it wrong: shapes are recorded too, so there is one graph for each size, and a step takes the
# smallest that holds it. A well-known rule is 1, 2, 4, 8 and then every multiple of 16:

# %%
predict(
    "09.bucket",
    "At most 20 requests, graphs for 1, 2, 4, 8 and 16. Eighteen are running. Which graph runs?",
    choices=["the graph of 16", "no graph"],
)

# %%
rule = [1, 2, 4, 8, *range(16, 20 + 1, 16)]
print("that rule:", rule, "→ a graph for 18:", bucket(rule, 18))
print("ours:     ", decode_sizes(20), "→ a graph for 18:", bucket(decode_sizes(20), 18))
reveal("09.bucket", "no graph")

# %% [markdown]
# The engine would run those steps kernel by kernel, and nobody would know why 18 requests are slower than 16. Ours
# ends exactly at the largest batch there can be. The rows left over are padding: they read no K and V, and write to
# no block.
#
# ## Plan while it computes
#
# Between two steps the host has work to do: read the tokens, book them, plan the next step. Chapter 05's `step()`
# does that while the GPU waits. `run()` does not wait for the tokens: it plans and launches the next step while this
# one computes, for all it needs to know is *how many* tokens there will be. Which ones stays on the device. (On a GPU,
# and while nobody listens: a view or a recorder is to hear of whole ticks, so with one `run()` goes step by step.) The
# lower half of the roofline's picture, further up, is to scale: 2.13 ms of kernels at 64 requests, as recorded, and 0.34 ms
# for the host, measured with 256 requests on two cores of a CPU.


# %%
def per_step(gpu_ms, host_ms, in_flight):
    return max(gpu_ms, host_ms) if in_flight else gpu_ms + host_ms


for gpu_ms in (2.13, 0.8, 0.2):
    alone, ahead = (per_step(gpu_ms, 0.34, flying) for flying in (False, True))
    print(f"kernels {gpu_ms:.2f} ms: step() {alone:.2f} ms, run() {ahead:.2f} ms, {alone / ahead:.2f} times as fast")
for row in run.of("step"):
    print(f"recorded, {row['batch']:3} requests: kernels {row['gpu ms']:.2f} ms, step {row['ms']:.2f} ms")

# %% [markdown]
# As long as the host is faster than the GPU, it costs nothing at all, or nearly. **Look at the last rows**: a step
# takes as long as its kernels, give or take three in a hundred (they were measured some tokens of context apart, and a
# short step leaves a gap behind it). The host is hidden. And the text is the same. A request that meets a stop token,
# is aborted or is preempted in the meantime has one step too many in flight. (One that reaches its length has not: that
# is known beforehand.) So each admission gives a request a new number, its *epoch*, and its rows carry it. A result
# whose request is gone, or has another epoch by now, is thrown away.
#
# ## All of it together
#
# nano-vllm's benchmark: 256 requests of 100 to 1024 tokens in and out. The floor is what memory and arithmetic allow:

# %%
(row,) = run.of("throughput")
best = statistics.median(row["seconds"])
print(f"{row['tokens in']:,} tokens in, {row['tokens out']:,} out: {best:.2f} s, {row['tok/s']:,} tokens per second")
print(f"the floor of that run: {row['floor s']:.2f} s, so {100 * row['floor s'] / best:.0f} % of what is possible")

# %% [markdown]
# (The first of its four runs took longer, since kernels were compiled in it; the median hardly sees that.) To
# compare with another engine, run both on the *same* machine on the same day. Rented cards of one type differ by a
# tenth, and hosts by more.
#
# ## Exercises
#
# **1.** `decode_bound(weights, kv, batch, context, bandwidth)`: seconds that a decode step takes at least. `weights`
# in bytes, `kv` in bytes per token, `bandwidth` in bytes per second. Stuck? `hint("09.decode_bound")`, then `2` and
# `3`.


# %%
def decode_bound(weights, kv, batch, context, bandwidth):
    return ...


check("09.decode_bound", decode_bound)

# %% [markdown] tags=["solution:09.decode_bound"]
# <details><summary>Solution</summary>
#
# ```python
# def decode_bound(weights, kv, batch, context, bandwidth):
#     return (weights + batch * context * kv) / bandwidth
# ```
#
# Every engine's decode speed is this, times how well it does its work.
#
# </details>

# %% [markdown]
# **2.** `graph_sizes(most)`: batch sizes to capture, if at most `most` requests run. The sizes ascend, each of
# them once; every batch finds a graph of at most twice its size, the last size is `most`, and there are at most
# `9 + most // 8` of them.


# %%
def graph_sizes(most):
    return ...


check("09.graph_sizes", graph_sizes)

# %% [markdown] tags=["solution:09.graph_sizes"]
# <details><summary>Solution</summary>
#
# ```python
# def graph_sizes(most):
#     return [size for size in [1, 2, 4, *range(8, most, 8)] if size < most] + [most]
# ```
#
# </details>

# %% [markdown]
# ## Quiz
#
# **1.** A card has twice the arithmetic and the same memory. How much faster is decoding?
#
# <details><summary>Answer</summary>
# Not at all, as long as it waits for memory. The *limit* of a long prefill halves, from 2.1 ms to 1.0 with 1530 tokens;
# the recorded 4.9 ms would lose at most one of them.
# </details>
#
# **2.** The weights are stored in 8 bits. What is that worth at one request, and what at 256 with 640 tokens each?
#
# <details><summary>Answer</summary>
# At one request nearly half of the *limit*. The step itself is three times its limit, so it gains less unless its
# kernels improve too. At 256, weights are 6 % of what is read, so 3 %. There it is the K and V that have to shrink:
# `kv_cache_dtype="fp8"`.
# </details>
#
# **3.** Your profile shows the GPU idle between steps. Two things to look at?
#
# <details><summary>Answer</summary>
# Whether a step in flight overlaps the planning, and whether this batch size has a graph.
# </details>
#
# **4.** A kernel reaches 90 % of the memory's rate. Is it good?
#
# <details><summary>Answer</summary>
# If it reads only what it must. A kernel that reads everything twice at 90 % is slower than one that reads it once at
# 60 %.
# </details>
#
# ## What you have measured
#
# | | |
# | --- | --- |
# | Qwen3-0.6B on an H200, one request, at most / recorded | 3,583 / 1,228 tokens per second |
# | 256 requests, at most / recorded | 58,086 / 43,797 tokens per second |
# | nano-vllm's benchmark | 4.77 s, 73 % of what is possible |
# | first token of 1500 + 30, cold / warm; 16 at once | 4.9 / 2.2 ms; 59.8 / 7.7 ms |
# | a new tensor under an old name | the graph never hears of it |
#
# **How close are we?** At large batches, three quarters. What is missing there is attention's last tenth and all
# that is not attention. At small ones a third: a step is then two hundred kernels, each too short to get going.

# %%
llm.close()
progress("09")

# %% [markdown]
# **Read the real thing.** Whole steps as graphs: [`minivllm/runtime/graphs.py`](../minivllm/runtime/graphs.py); one
# step in flight: `_overlapped` in [`minivllm/engine.py`](../minivllm/engine.py); the limit:
# [`minivllm/bench/roofline.py`](../minivllm/bench/roofline.py). `python -m minivllm bench throughput latency prefix
# profile --dummy-weights qwen3-0.6b` makes your own recording. In vLLM:
# [`vllm/v1/worker/gpu_model_runner.py`](https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/worker/gpu_model_runner.py)
# and its `cudagraph_capture_sizes`. The roofline is Williams, Waterman and Patterson
# ([2009](https://doi.org/10.1145/1498765.1498785)).
#
# **Next:** [10 · The diagnosis lab](10_diagnosis_lab.ipynb) An engine is sick: what is it?

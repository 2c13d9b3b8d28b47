# %% [markdown]
# # 01 · Why a KV cache?
#
# **A model that keeps its keys and values computes every token once. One that does not computes the whole text
# again for each new token. The price of keeping is memory, and the rest of this course is about that memory.**
#
# You will be able to
#
# - say what a step computes, with and without a cache, and count it;
# - show on a real model that the text is the same;
# - work out how many bytes a token costs, for any model, from its `config.json`;
# - tell query heads from KV heads, and say why only the latter count;
# - say what happens when a cache is lost.
#
# | needs | time | device |
# | --- | --- | --- |
# | chapter 00 | 40 min | CPU; about half a minute of computing |
#
# **Why keep K and V, and what does it cost?** Take a text of 512 tokens and ask for one more. On one core of the
# computer that built this page it took 1.7 seconds, and a small part of that with the keys and values of those 512
# at hand. By the end you will have measured how small, and you will know what it costs in memory.

# %%
import inspect
import time

import torch

from minivllm import LLM, Engine, EngineConfig, SamplingParams
from minivllm.config import kv_bytes_per_token
from minivllm.core.plan import Draft
from minivllm.lab import check, expect, hint, predict, progress, reveal
from minivllm.lab.exercises.ch01 import BYTES, CONFIGS
from minivllm.viz.kv_growth import KVGrowth

torch.set_num_threads(1)
llm = LLM("packaged", device="cpu", dtype="float32", num_blocks=64, enable_prefix_caching=False)
engine = llm.engine

# %% [markdown]
# ## What one step computes
#
# To choose the next token, the model looks back: the newest token's *query* is compared with the *key* of every
# token before it, and their *values* are mixed accordingly. The key and value of a token depend on that token and
# on those before it. Nothing that comes later changes them. So they can be kept.
#
# The engine tells what it does through events. A `run` event says which positions of a request a step computes.
# We write them down as pairs: first position, how many.

# %%
rows = []


@engine.bus.subscribe
def note(event):
    if event.kind == "run":
        rows.append((event.start, event.count))


# %%
rows.clear()
prompt = llm.tokenizer.encode("Once upon a time, there was a")
forty = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
answer = llm.generate(prompt, forty, use_tqdm=False)[0].outputs[0]
with_cache = rows[:]
print(len(prompt), "prompt tokens;", llm.tokenizer.decode(prompt) + answer.text)

# %%
print("steps:", len(with_cache), " the first four:", with_cache[:4])
print("positions computed:", sum(count for _, count in with_cache))

# %% [markdown]
# The first step computes the prompt, 8 positions at once: the **prefill**. Every later one computes a single
# position, the newest: a **decode**. The 40th token is written but never read again, so 8 + 39 = 47.
#
# The whole saving is a subtraction. This is where the engine decides how much of a request to compute: from
# `num_scheduled`, the first position that it has not computed yet.

# %%
print(inspect.getsource(Draft.add))

# %% [markdown]
# ## And without?
#
# Let the model forget everything after every token. For each new one we hand in the whole text again, as a new
# request that may write one token.

# %%
predict("01.positions", "How many positions are computed for the same 40 tokens if nothing is kept?", unit="positions")

# %%
one = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
rows.clear()
text = list(prompt)
for _ in range(40):
    text += llm.generate(text, one, use_tqdm=False)[0].outputs[0].token_ids
without_cache = rows[:]

print("same tokens:", text == prompt + answer.token_ids)
print("steps:", len(without_cache), " the first four:", without_cache[:4])
reveal("01.positions", sum(count for _, count in without_cache), "positions")

# %% [markdown]
# The same words, 23 times the work. What is kept instead takes memory: a key and a value for each token, in each of 30
# layers. A key is 64 numbers for each of 3 heads, a value as many, and a number takes 4 bytes. How much that is will be
# counted below, and the picture tells it too. What do you think?

# %%
predict("01.bytes", "How many bytes does one token of this model occupy?", unit="bytes")

# %% [markdown]
# Step through both. **Look at the hatched area**: all of it was known already.

# %%
names = [llm.tokenizer.decode([token]) for token in text]
per_token = kv_bytes_per_token(num_layers=30, num_kv_heads=3, head_dim=64, dtype_bytes=4)
both = {"without a cache": without_cache, "with a cache": with_cache}
growth = KVGrowth(both, names, per_token, title="40 tokens, two ways")
growth.tick = 14
growth.show()

# %% [markdown]
# A row is a step, a column a position. Solid: computed for the first time. Hatched: computed again. Pale:
# read from the cache. The two bars at the bottom are K and V as they grow, one token wider with every step. Press
# `→`, or:

# %%
growth.step(26)
print(growth.sentence)

# %% [markdown]
# A triangle has half the area of its square. For `n` new tokens the work without a cache grows like n², with a
# cache like n:

# %%
print("  new tokens    without       with    times")
for new in (10, 100, 1_000, 10_000):
    without, kept = 8 * new + new * (new - 1) // 2, 7 + new  # a rectangle for the prompt and a triangle; a row
    print(f"{new:12,} {without:10,} {kept:10,} {without // kept:8,}")

# %% [markdown]
# One thing the cache does not save. Each decode step still *reads* all the keys and values before it: the pale
# triangle. It skips computing them, which is by far the larger part, but reading takes time too, and more for a
# longer text. Chapters 04 and 09 come back to that.
#
# ## In seconds
#
# Work is not time. A short step spends most of its time on reading the model's weights, and that is the same for
# 1 position as for 10. So let us ask at a length where it matters: one more token after 512.

# %%
predict("01.faster", "One more token after 512: how many times faster is it with the cache?", unit="times")

# %% tags=["nbval-ignore-output"]
# reason: a measurement
engine.add((text * 11)[:512], SamplingParams(temperature=0, max_tokens=6, ignore_eos=True))
seconds = []
while engine.has_unfinished:
    begin = time.perf_counter()
    engine.step()
    seconds.append(time.perf_counter() - begin)
without, kept = seconds[0], min(seconds[1:])  # the first step has nothing to go by, the others have
print(f"without: {without:.2f} s    with: {kept:.2f} s")
reveal("01.faster", without / kept, "times")

# %%
print("at least four times faster:", without > 4 * kept)

# %% [markdown]
# ## What it costs
#
# Each token leaves a key and a value, in each layer. They lie in one tensor, the **pool**, that the engine
# allocates once: layers, K and V, blocks, tokens in a block, heads, numbers per head.

# %%
pool = engine.runner.kv
print(tuple(pool.shape), pool.dtype)
layers, two, blocks, block_size, heads, numbers = pool.shape
reveal("01.bytes", pool.nbytes // (blocks * block_size), "bytes")
print("512 tokens:", 512 * pool.nbytes / (blocks * block_size) / 2**20, "MiB")

# %% [markdown]
# 45 KiB for one token, for one piece of a word. The text itself has about 5 bytes per token. Here is the formula:

# %%
print(inspect.getsource(kv_bytes_per_token))

# %% [markdown]
# ## Only KV heads count
#
# This model asks with 9 query heads, but it has 3 *KV heads*: three query heads share one. That is
# **grouped-query attention** (GQA). Where every query head has its own keys and values, it is *multi-head
# attention* (MHA). Look at four models, in 16 bits:


# %%
def kib(layers, heads, head_dim):
    return kv_bytes_per_token(layers, heads, head_dim, dtype_bytes=2) / 2**10


print("per token, KiB   layers  heads  KV heads   as MHA   as it is")
for name, layers, heads, kv_heads, head_dim in (
    ("Llama-2-7B", 32, 32, 32, 128),
    ("Llama-3-8B", 32, 32, 8, 128),
    ("Qwen3-0.6B", 28, 16, 8, 128),
    ("SmolLM2-135M", 30, 9, 3, 64),
):
    every, really = kib(layers, heads, head_dim), kib(layers, kv_heads, head_dim)
    print(f"{name:16} {layers:6} {heads:6} {kv_heads:9} {every:8.1f} {really:10.1f}")

# %% [markdown]
# Two surprises. Llama-3-8B is the larger model, and its tokens cost a quarter of Llama-2-7B's. And Qwen3-0.6B,
# thirteen times smaller, costs almost as much per token as Llama-3-8B. **The size of a model says little about
# its cache.**
#
# How many texts of 2048 tokens does a card of 24 GiB hold beside the weights?

# %%
GIB = 2**30
for name, weights, kv_heads in (("Llama-2-7B", 6_738_415_616, 32), ("Llama-3-8B", 8_030_261_248, 8)):
    one_text = 2048 * kv_bytes_per_token(32, kv_heads, 128, dtype_bytes=2)
    left = 24 * GIB - 2 * weights
    print(f"{name}: weights {2 * weights // 10**6:,} MB, one text {one_text // 2**20} MiB, room for {left // one_text}")

# %% [markdown]
# > **Checked against the source.** The article that this course began with, a Chinese one on
# > PagedAttention and prefix caching as nano-vllm does them, gives the formula as 2 × layers ×
# > *heads* × head_dim × tokens × bytes, and the example: 32 layers, 32 heads of 128, 2048 tokens, fp16, 1 GiB per
# > sequence, 8 GiB for eight, beside 14 GB of weights for a 7B model, so that a 24 GB card fills up.
# >
# > The example holds: exactly 1 GiB, and 13.5 GB of weights. Eight sequences and the weights make 20.6 of 24 GiB;
# > the card is full at eleven. The formula holds only where every head has its own K and V. With GQA it is **KV
# > heads** that count: the same formula with all 32 heads would put Llama-3-8B four times too high.
#
# ## Exercises
#
# **1.** `kv_bytes(config, tokens)`, from what a model's `config.json` says. `CONFIGS` holds four of them. Beware:
# an old file may not name its KV heads, and only some name `head_dim`. `BYTES` knows the size of a number.

# %%
print(CONFIGS["Qwen3-0.6B"])


def kv_bytes(config, tokens):
    return ...


check("01.kv_bytes", kv_bytes)

# %% [markdown] tags=["solution:01.kv_bytes"]
# <details><summary>Solution</summary>
#
# ```python
# def kv_bytes(config, tokens):
#     heads = config["num_attention_heads"]
#     kv_heads = config.get("num_key_value_heads", heads)
#     head_dim = config.get("head_dim", config["hidden_size"] // heads)
#     return 2 * config["num_hidden_layers"] * kv_heads * head_dim * BYTES[config["torch_dtype"]] * tokens
# ```
#
# Read it aloud: a key and a value, in every layer, for every KV head, `head_dim` numbers of so many bytes, for
# every token.
#
# </details>

# %% [markdown]
# **2.** `positions(prompt, new, cached)`: how many positions are computed to write `new` tokens after a prompt of
# `prompt` tokens? `cached` is True or False. A live engine checks your numbers.


# %%
def positions(prompt, new, cached):
    return ...


check("01.positions", positions)

# %% [markdown] tags=["solution:01.positions"]
# <details><summary>Solution</summary>
#
# ```python
# def positions(prompt, new, cached):
#     if cached:
#         return prompt + new - 1
#     return sum(prompt + k for k in range(new))
# ```
#
# The sum is `prompt * new + new * (new - 1) // 2`: there is the square.
#
# </details>

# %% [markdown]
# ## Break it: drop the cache at token 40
#
# A request has 40 tokens, and its cache is taken away. (This is no accident: engines do it on purpose when memory
# runs out. Chapter 05 calls it preemption.) Here we ask for another pool, so the old one is gone.

# %%
predict("01.drop", "How many positions are computed that were known already?", unit="positions")

# %%
rows.clear()
again = engine.add(prompt, forty)
engine.run(max_steps=32)  # 8 prompt tokens and 32 new ones: 40
engine.reconfigure(num_blocks=48)
engine.run()
dropped = rows[:]

print("same text:", engine.result(again).outputs[0].text == answer.text)
print("steps 32 to 35:", dropped[31:35])
reveal("01.drop", sum(count for _, count in dropped) - sum(count for _, count in with_cache), "positions")

# %%
loss = KVGrowth({"with a cache": with_cache, "dropped at 40 tokens": dropped}, names, per_token, title="one lost cache")
loss.tick = 33
loss.show()

# %% [markdown]
# One hatched row. The token ids are small and were never lost, so K and V can be made again from them, in one
# step. A cache is a copy of work, not of knowledge.
#
# That holds if the engine *knows* that the cache is gone. What if the memory is wiped, and nobody tells it?

# %% tags=["nbval-ignore-output"]
# reason: how a confused model babbles may differ from one processor to the next
silent = engine.add(prompt, forty)
engine.run(max_steps=32)
with torch.inference_mode():
    engine.runner.kv.zero_()  # the engine still believes that K and V of 39 tokens are there
engine.run()
print(engine.result(silent).outputs[0].text)

# %%
babble = engine.result(silent).outputs[0].token_ids
print("the first 32 tokens are right:", babble[:32] == answer.token_ids[:32])
print("all 40 are right:", babble == answer.token_ids)

# %% [markdown]
# No error, no warning, wrong words. Most bugs of an inference engine look like this, and several chapters break
# it in this way on purpose.
#
# What is refused, and loudly, is a pool that does not fit into memory:

# %%
with expect(ValueError, match="need 703125.0 MiB"):
    Engine(EngineConfig(num_blocks=1_000_000, device="cpu"), model=engine.model)

# %% [markdown]
# ## Quiz
#
# **1.** Why are the *queries* of old tokens not kept?
#
# <details><summary>Answer</summary>
# A query is used once, by its own token, to look back. Later tokens compare their own queries with the old keys,
# and mix the old values. Nobody asks for an old query again.
# </details>
#
# **2.** A model gets twice as many query heads, the KV heads stay. What happens to the cache?
#
# <details><summary>Answer</summary>
# Nothing. Only KV heads are kept.
# </details>
#
# **3.** At 512 tokens the cache saves 511 of 512 positions, yet a step is not 512 times faster. Where does the
# time go?
#
# <details><summary>Answer</summary>
# Even a single position has to read all the weights, about half a gigabyte here. Computing 512 positions reads
# them once too, so the long step is cheaper per position.
# </details>
#
# **4.** Could the cache store the *text* instead, and be ten thousand times smaller?
#
# <details><summary>Answer</summary>
# The engine does keep the token ids. But K and V are what a step needs; from the ids it must compute them again.
# That is the hatched row.
# </details>
#
# ## What you have measured
#
# | | without a cache | with a cache |
# | --- | --- | --- |
# | positions for 40 tokens after 8 | 1,100 | 47 |
# | grows like | n² | n |
# | memory for a token, SmolLM2 in 32 bits | none | 46,080 bytes |
# | one text of 2048 tokens, Llama-2-7B in 16 bits | none | 1 GiB |
# | after a loss | nothing to lose | one step computes all of it again |
#
# **Why keep K and V?** Because 47 is less than 1,100. **What does it cost?** 2 × layers × KV heads × head_dim ×
# bytes, for each token, for as long as the request lives.

# %%
llm.close()
progress("01")

# %% [markdown]
# **Read the real thing.** The formula is in [`minivllm/config.py`](../minivllm/config.py), the pool in
# [`minivllm/runtime/kv_store.py`](../minivllm/runtime/kv_store.py). vLLM has the formula in
# [`vllm/v1/kv_cache_interface.py`](https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/kv_cache_interface.py):
# find `page_size_bytes`, and the 2 for K and V in it. GQA is by Ainslie et al.
# ([2023](https://arxiv.org/abs/2305.13245)).
#
# **Next:** [02 · Where do the gigabytes go?](02_contiguous_waste.ipynb) A request's cache grows, and nobody knows
# how far. What happens if you reserve for the longest case?

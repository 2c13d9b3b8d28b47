# %% [markdown]
# # 00 · Start here
#
# **In fifteen minutes you will have run a real language-model engine on this machine, watched it work one tick at
# a time, gone back in time, and changed it while it ran.**
#
# You will be able to
#
# - say what this machine has, and which code does the arithmetic on it;
# - make a real model write, and say how fast it is here;
# - read the engine view: requests, blocks, ticks;
# - recognise a wrong environment by its message;
# - change one setting and see what it did.
#
# | needs | time | device |
# | --- | --- | --- |
# | Python, and a rough idea of what a transformer is | 15 min | any laptop; no GPU is needed |
#
# **What will I run, and is my machine ready?** One core of a computer is enough for a model of 135 million
# weights to write faster than you read. How fast is yours? Let us find out.
#
# Every page comes with the outputs of one run. They would tell you the answers too early: *Edit ▸ Clear Outputs of All
# Cells* takes them away.
#
# Run each cell with Shift + Enter, from top to bottom. If one says `NameError`, a cell above it has not run yet in
# this session: *Run ▸ Run All Above Selected Cell* mends that.

# %%
import inspect
import time
from dataclasses import replace

import torch

from minivllm import LLM, Engine, EngineConfig, SamplingParams
from minivllm.lab import check, expect, hint, predict, progress, reveal
from minivllm.lab.exercises.ch00 import START, six_requests, ticks_to_finish
from minivllm.lab.machine import look
from minivllm.lab.self_test import self_test
from minivllm.narrate import sentence
from minivllm.viz import EngineView

torch.set_num_threads(1)  # one core: a little slower, and the same result every time

# %% [markdown]
# ## Is this machine ready?

# %% tags=["nbval-ignore-output"]
# reason: every machine is another one
machine = look()
print(machine)

# %%
print("in the way:", machine.problems or "nothing")

# %% [markdown]
# If something stands in the way, its sentence says which command mends it.
#
# The engine's heavy work is done by **kernels**: small programs that run once for every tile of a tensor. Ours
# are written in Triton. With a GPU they are compiled for it. Without one, the engine computes with plain PyTorch,
# and the same kernels run in Triton's *interpreter*: slow, but you can print from inside. Do they compute the
# right thing here? Four of them, on tiny tensors, against PyTorch:

# %%
for kernel, finding in self_test().items():
    print(f"{kernel:16} {finding}")

# %% [markdown]
# ## Twenty real tokens
#
# `LLM("packaged")` is SmolLM2, a small real model that came with the course. (`LLM()` takes the best model you
# have; with a name everybody gets the same words.) It reads tokens, not letters, so look at those first.

# %%
llm = LLM("packaged", device="cpu", dtype="float32", num_blocks=64)
prompt = "The sun rises in the"
tokens = llm.tokenizer.encode(prompt)
print(tokens)
print([llm.tokenizer.decode([token]) for token in tokens])

# %%
twenty = SamplingParams(temperature=0, max_tokens=20)  # temperature 0: always the likeliest token
print(prompt, end="")
for piece in llm.stream(prompt, twenty):
    print(piece, end="")

# %% [markdown]
# Nothing was fetched and nothing was faked: thirty layers ran for each of these words. How fast was that?

# %%
predict("00.speed", "How many tokens per second will this machine write?", unit="tokens per second")

# %% tags=["nbval-ignore-output"]
# reason: a measurement
begin = time.perf_counter()
llm.generate(prompt, twenty, use_tqdm=False)
rate = 20 / (time.perf_counter() - begin)
reveal("00.speed", rate, "tokens per second")

# %%
print("fast enough for this course:", rate > 1)

# %% [markdown]
# Why not faster? For every token the processor must read all the weights, here half a gigabyte, and it does
# little with each of them. Chapter 09 turns that sentence into a formula. Chapter 01 asks why it is not much
# slower.

# %% [markdown]
# ## The engine view
#
# An engine serves many requests at once, and it works in **ticks**. In each tick it decides who runs, computes,
# and hands out the new tokens. To watch the deciding, no model is needed: `Engine` without one is a *simulation*.
# Same scheduler, same memory, only the tokens are made up. Here is a tiny one: 24 blocks of memory, 4 tokens in
# each.
#
# Two requests arrive. B begins with the same 8 tokens as A.

# %%
engine = Engine(EngineConfig(block_size=4, num_blocks=24, max_num_batched_tokens=16))
view = EngineView(engine, title="a short tour")
story = list(range(100, 110))
engine.add(story, SamplingParams(temperature=0, max_tokens=8))
view.step(2)
engine.add(story[:8] + list(range(200, 214)), SamplingParams(temperature=0, max_tokens=6))
view.step()
view.show()

# %% [markdown]
# Read it in this order:
#
# 1. **The sentence** says what happened in this tick. Everything else is detail.
# 2. **Requests**, left: who runs, and which blocks of memory each one has. The small number above a block is its
#    place in the request, the number inside is where it really lies.
# 3. **The pool**: all the memory there is. A colour is a request. Two colours in one block: they share it,
#    because B begins like A.
# 4. **The buttons**: step, back, play. Click the sentence, and `→` and `←` do the same. (Inside the pool they go from
#    block to block; `Esc` leads out.) `?` lists all keys.
#
# Now press `→` three times. Then press `←` twice. Each tick is recorded, so you can look at any of them again.
# Whatever a button does, you can do from Python too:

# %%
view.step(5)
print(f"tick {view.tick}: {view.sentence}")

# %%
view.back(2)
print(f"tick {view.tick}: {view.sentence}")
print(f"the engine itself stays at tick {engine.tick}")

# %% [markdown]
# Looking back changes nothing: the engine stands where it stood. Stepping on from there replays the recording,
# until you reach the *live edge*. Only there the engine computes again.
#
# ## Change one setting, run again
#
# Six requests, and the settings `START`. It takes 36 ticks. What are they waiting for?

# %%
slow = six_requests(START)
recording = slow.record()
slow.step()
print(sentence(recording.events_of(1)))
print("ticks:", ticks_to_finish(START))

# %% [markdown]
# Every setting is a field of `EngineConfig`, with a line that says what it does. These are four of them:

# %%
source = inspect.getsource(EngineConfig).splitlines()
for name in ("block_size", "num_blocks", "max_num_seqs", "max_num_batched_tokens"):
    at = next(i for i, line in enumerate(source) if line.strip().startswith(f"{name}:"))
    print("\n".join(line.strip() for line in source[at : at + 2]))

# %% [markdown]
# **Exercise.** Change *one* setting, so that the six requests finish in at most half the ticks.
# `START.replace(block_size=8)` gives a copy of `START` with another `block_size`; that one will not help. Stuck?
# `hint("00.setting")` gives a first hint, `hint("00.setting", 2)` and `3` say more.

# %%
mine = ...  # START.replace(…)

check("00.setting", mine)

# %% [markdown] tags=["solution:00.setting"]
# <details><summary>Solution</summary>
#
# ```python
# mine = START.replace(max_num_seqs=6)
# ```
#
# `max_num_seqs` is the number of seats. With one seat the requests go one after another, 6 ticks each. With six they
# share the ticks: 9 in all. More memory or a larger token budget changes nothing, because nobody waited for those.
# (With six seats the budget comes next: 16 tokens a tick do not hold six prompts; with 128 it is 6 ticks.)
#
# </details>

# %% [markdown]
# ## Break it
#
# A wrong environment should say so in words. What would this page say on an old Python without PyTorch?

# %%
old = replace(machine, python=(3, 9), versions=machine.versions | {"torch": None}, memory_gib=None)
for problem in old.problems:
    print("-", problem)

# %% [markdown]
# A model file that is not there, GPU kernels on a CPU, a block of no tokens:

# %%
with expect(FileNotFoundError, match="does not exist"):
    LLM("no-such-model.gguf")
with expect(RuntimeError, match="needs a CUDA device"):
    LLM("packaged", device="cpu", kernels="triton")
with expect(ValueError, match="block_size is 0"):
    EngineConfig(block_size=0)

# %% [markdown]
# Each message names what was given and what is allowed. You will break many things in this course. `expect` makes
# it safe: it shows the error in one line, and fails if there is none.
#
# ## Quiz
#
# **1.** You step back two ticks in the view. What happens to the requests?
#
# <details><summary>Answer</summary>
# Nothing. The view shows a recording; the engine itself stays at its last tick.
# </details>
#
# **2.** `Engine(EngineConfig())` has no model. What is real about it?
#
# <details><summary>Answer</summary>
# The scheduler, the block tables, the cache and every count. Only the arithmetic is missing, so a tick takes
# microseconds.
# </details>
#
# **3.** The self-test says “agrees”, and there is no GPU. Where did the Triton kernels run?
#
# <details><summary>Answer</summary>
# In Triton's interpreter: on the CPU, one program after another. The engine itself used plain PyTorch.
# </details>
#
# ## What you have seen
#
# | name | what it is |
# | --- | --- |
# | token | what the model reads and writes: a piece of a word, as a number |
# | tick | one step of the engine: plan, launch, collect |
# | request | a prompt, and the tokens made from it so far |
# | block, pool | the memory for requests, cut into equal pieces; all of them together |
# | live edge | the last tick that has run |
#
# **Is your machine ready?** If the cells above ran, it is. It writes several tokens per second, and every
# tick of it can be looked at.

# %%
llm.close()
progress("00")

# %% [markdown]
# **Read the real thing.** One tick is three lines: [`minivllm/engine.py`](../minivllm/engine.py), `step`. vLLM's
# is as short:
# [`vllm/v1/engine/core.py`](https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/engine/core.py),
# `EngineCore.step`: schedule, execute the model, update from output.
#
# **Next:** [01 · Why a KV cache?](01_why_kv_cache.ipynb) What does the engine remember between two tokens, and
# what does it cost?

# %% [markdown]
# # 02 · The waste of contiguous memory
#
# **An engine that reserves the longest answer for everybody fills its memory with promises: most of it never holds a
# token, and the holes between refuse requests that would fit.**
#
# You will be able to
#
# - name the three kinds of waste, reserved, internal and external, and point at each in a picture;
# - say what `max`, `pow2` and `oracle` reserve, and what each of them still wastes;
# - explain how a request can be refused while more than enough memory is free;
# - check a memory claim: of what, when, and do the weights count?
#
# | needs | time | device |
# | --- | --- | --- |
# | chapter 01 | 35 min | CPU; about 20 seconds of computing |
#
# **Where do the gigabytes go if we reserve the maximum length?** Chapter 01 gave the price of a token. An engine does
# not know how many tokens an answer will have. The simplest way is to be safe: reserve the longest answer the model
# allows, in one piece. Eight requests do that below. They get 8,192 slots. How many of those will ever hold a token?

# %%
import inspect

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm import events as ev
from minivllm.config import kv_bytes_per_token
from minivllm.core.contiguous import Buddy, ContiguousManager
from minivllm.lab import check, expect, experiments, hint, predict, progress, reveal
from minivllm.lab.experiments import paper
from minivllm.lab.record import load
from minivllm.metrics import Metrics
from minivllm.narrate import line
from minivllm.viz import MemoryStrip


def exactly(n):
    return SamplingParams(temperature=0, max_tokens=n, ignore_eos=True)


# %% [markdown]
# ## Predict
#
# Eight requests, prompt and answer in tokens. The model allows 1,024. Each of them reserves that many slots, one
# after the other.

# %%
asked = [(27, 43), (410, 180), (95, 60), (12, 310), (230, 25), (64, 64), (150, 200), (33, 90)]
predict("02.wasted", "What percentage of the reserved slots will never hold a token?", unit="%")

# %%
engine = Engine(
    EngineConfig(kv_layout="contiguous", reservation="max", block_size=1, num_blocks=8 * 1024, max_model_len=1024)
)
metrics = Metrics(engine)
for number, (prompt, answer) in enumerate(asked):
    engine.add([number] * prompt, exactly(answer))
outputs = engine.run()
written = sum(len(o.prompt_token_ids) + len(o.outputs[0].token_ids) - 1 for o in outputs)
reveal("02.wasted", round(100 - 100 * written / 8192), "%")
print(f"{written:,} of 8,192 slots were ever written")

# %% [markdown]
# (Minus one, because the last token of an answer is never fed back: nobody needs its K and V.)
#
# That is the end of the story. What about the middle of it? At any moment a slot of a reservation is one of three
# things:
#
# - **used**: it holds K and V now;
# - **reserved**: it is empty, and this request will write it later;
# - **internal** waste: it is empty, and this request never will.
#
# Our engine counts them after every tick:

# %%
print("tick   used  reserved  internal   running")
for use in (metrics.steps[at] for at in (0, 20, 40, 100, 250)):
    print(f"{use.tick:4}  {use.used:5,}  {use.reserved:8,}  {use.internal:8,}  {use.running:8}")

# %% [markdown]
# **Look at the column `internal`**: it is the largest from the first tick on. And look at `reserved`: that memory
# will be needed, but not *now*. Somebody else could have used it until then.
#
# ## Three rules, one piece each
#
# Can we be cleverer about how much to reserve? The [paper that introduced paging](https://arxiv.org/abs/2309.06180)
# compares three rules. Here they are in our engine:

# %%
print(inspect.getsource(ContiguousManager.reserved))

# %% [markdown]
# `oracle` is not a real option: nobody knows an answer's length before it is written. It stands here as the best that
# *any* guess could do.
#
# ## See it
#
# 560 slots of memory, 26 requests in line, four engines over the same list: `Max`, `Pow2`, `Oracle`, and `Paged`,
# which takes 16 slots at a time, anywhere. What share of its memory will each have in use?

# %%
prompts = (27, 46, 35, 42, 49, 50, 42, 47, 24, 42, 47, 37, 21, 52, 45, 12, 16, 49, 31, 13, 29, 50, 36, 39, 48, 20)
answers = (49, 20, 50, 52, 16, 12, 28, 26, 57, 46, 42, 52, 26, 21, 36, 54, 22, 14, 61, 64, 42, 58, 57, 37, 40, 35)
requests = list(zip(prompts, answers, strict=True))
print(
    "a prompt has", sum(prompts) // 26, "tokens on average, an answer", sum(answers) // 26, "and 128 are allowed in all"
)

# %%
predict("02.max", "Max: per cent of the memory in use, after 26 ticks?", unit="%")

# %%
predict("02.paged", "And Paged?", unit="%")

# %%
strip = MemoryStrip(requests, slots=560, longest=128)
for name, key in (("Max", "02.max"), ("Paged", "02.paged")):
    if key in load()["predictions"]:
        strip.predict(name, load()["predictions"][key], tick=26)
strip.step(26)
strip.show()

# %% [markdown]
# Each row is the whole memory, to scale. **Look at the row of Pow2**: H asks for 79 slots. 190 are free, in three
# holes, and the largest has 78. One slot is missing, so H waits, and everybody behind H waits too. This is
# **external** waste: memory that belongs to nobody and is of no use to anybody.
#
# Press `Home`, then `→`. At first there is one hole, at the end, too short for the next in line. More come when requests
# of different lengths leave.
# `r` jumps to the next refusal. Then change `longest allowed` to 256 and look at Max. However you leave it, the next
# cell puts it back to tick 26, 128 allowed and blocks of 16, which is what you predicted for:

# %%
strip.change("longest", 128)
strip.change("block_size", 16)
strip.goto(26)
reveal("02.max", strip.shares("Max")["used"], "%")
reveal("02.paged", strip.shares("Paged")["used"], "%")
holes = [length for _, length in strip.engines["Pow2"].scheduler.cache.allocator.holes()]
print("holes of Pow2:", holes, "so", sum(holes), "slots are free")

# %%
strip.change("longest", 256)
print("Max, 256 allowed:", strip.shares("Max"))
strip.change("longest", 128)
strip.change("block_size", 64)
print("Paged in blocks of 64:", strip.shares("Paged"))
strip.change("block_size", 16)

# %% [markdown]
# So `Max` suffers from every token that the *model* allows, whether anybody uses it or not. `Paged` wastes at most
# the end of each request's last block, and that grows with the block. What it trades is chapter 03.
#
# ## Exercises
#
# **1.** Memory is a row of `size` slots. `extents` are the pieces in use, `(start, length)`, in any order. How long
# is the largest hole?


# %%
def largest_hole(size, extents):
    return ...


check("02.largest_hole", largest_hole)

# %% [markdown] tags=["solution:02.largest_hole"]
# <details><summary>Solution</summary>
#
# ```python
# def largest_hole(size, extents):
#     largest = at = 0
#     for start, length in sorted(extents):
#         largest = max(largest, start - at)
#         at = start + length
#     return max(largest, size - at)
# ```
#
# Walk through the pieces by address. Before each lies a gap, perhaps of length 0, and one more lies behind the last.
#
# </details>

# %% [markdown]
# **2.** A request needs `tokens` slots. `holes` are the lengths of all free runs of slots. With `block_size=None`
# memory is contiguous, otherwise it is paged in blocks of that size. (Each hole then begins at a block's edge, and may
# end inside a block; only whole blocks can be had.) Can the request be admitted?


# %%
def can_admit(tokens, holes, block_size=None):
    return ...


check("02.can_admit", can_admit)

# %% [markdown] tags=["solution:02.can_admit"]
# <details><summary>Solution</summary>
#
# ```python
# def can_admit(tokens, holes, block_size=None):
#     if block_size is None:
#         return any(hole >= tokens for hole in holes)
#     return sum(hole // block_size for hole in holes) >= -(-tokens // block_size)
# ```
#
# Contiguous: one hole must do. Paged: any blocks will do, only their number counts. That `any` against `sum` is the
# whole difference.
#
# </details>

# %% [markdown]
# Stuck? `hint("02.can_admit")` gives a first hint, `hint("02.can_admit", 2)` and `3` say more. Your answers are
# checked against the engine's own allocator, on a few hundred random memories.
#
# ## The article's experiments
#
# The article that this course began with reports two measurements. Ours, on the same kind of requests, counts KV
# alone, for a 7B model with 512 KiB per token:


# %%
def rows(name, layouts=("max, first-fit", "pow2, first-fit", "oracle, first-fit", "paged")):
    print(f"{'':18} held GB  used GB  in use  batched  steps")
    for layout in layouts:
        row = dict(
            zip(table.columns, next(r for r in table.rows if r[0].startswith(name) and r[1] == layout), strict=True)
        )
        print(
            f"{layout:18} {row['peak held GB']:7.1f}  {row['mean used GB']:7.1f}  {row['used % of held']:4.0f} %"
            f"  {row['batched']:7.1f}  {row['steps']:5,}"
        )


table = experiments.run("fragmentation")
rows("1: lengths")

# %% [markdown]
# Experiment 1: 64 requests of 32 to 1024 tokens, 8 at a time, memory for 8 × 1024. `held` is the peak of what
# requests keep from others, `used` the mean of what holds tokens. All four rules batch the same, for there is memory
# enough for everybody at full length. Now halve it:

# %%
rows("1 in half")

# %% [markdown]
# **Look at `batched` and `steps`**: in half the memory paging takes 4 % more steps, reserving the maximum 90 % more.
# That is what waste costs. Not gigabytes on a bill, but requests that stand in line.
#
# > **Checked against the source: experiment 1.** The article reports 5.6 GB contiguous against 2.1 GB paged, a factor
# > of 2.7, and no failures by fragmentation. The direction holds; the gigabytes depend on the model and on the
# > answers' lengths, which it does not give. For ours: 4.3 against 3.0 GB at the peak, and 47 % of the held memory in
# > use against 98 %. On the mean of what is held, the factor is 2.1.
#
# Experiment 2: 32 requests with prompts of 256 to 2048 tokens, 128 generated by each.

# %%
rows("2: prompts")

# %%
weights = 7e9 * 2 / 1e9
print(
    f"weights of a 7B model in fp16: {weights:.0f} GB; of the claimed 8.5 GB peak, that leaves {8.5 - weights:.1f} GB for KV"
)
per_token = kv_bytes_per_token(num_layers=32, num_kv_heads=32, head_dim=128, dtype_bytes=2)
room = int((24e9 * 0.9 - 14e9) / per_token)
print(f"a 24 GB card, nine tenths of it ours: room for {room:,} tokens of KV")
print("requests of 2,176 reserved:", room // 2176, "  of 1,280 in use, paged:", room // 1280)

# %% [markdown]
# > **Checked against the source: experiment 2.** “Peak memory 15 GB → 8.5 GB” cannot be as stated. The weights alone
# > are 14 GB, and they are there with any layout, so no way of keeping KV can bring a 7B model in fp16 to 8.5 GB. If
# > 15 GB is everything, KV was 1 GB of it. A memory figure says something only if it says what it counts. So we count
# > KV, held and used, and requests that run: in the same 20,000 slots 8.0 requests at a time when each reserves the
# > maximum, 10.6 when paged, and 59 % of the held memory in use against 99 %.
#
# **Look at pow2 and oracle** in that table: here they do as well as paging. The prompts are long and every answer has
# 128 tokens, so there is little to guess and little to waste. Where the waste is depends on the traffic. So measure
# yours.
#
# ## The paper's figure, live
#
# Now the measurement that made paging famous: Kwon et al. (2023), Figures 2 and 13. OPT-13B on a 40 GB card has room
# for 15,700 tokens. Requests arrive at random, twice a second, with the lengths of ShareGPT conversations: 161 tokens
# in, 338 out, on average. Orca's extents come from a **buddy allocator**, which hands out powers of two only:

# %%
buddy = Buddy(64)
for size in (5, 9, 30):
    print(f"asked for {size:2}, got (start, length) = {buddy.allocate(size)}")
print("holes:", buddy.holes())

# %%
predict(
    "02.batched", "Max batches 7 requests at a time. How many will paging batch, in the same memory?", unit="requests"
)

# %%
calls = paper.arrivals(paper.TRAFFIC["ShareGPT"], 600, seed=0)
batched, used = {}, {}
print(f"{'':14} requests batched    memory that holds tokens\n{'':14}  ours    paper       ours      paper")
for system, config in paper.SYSTEMS.items():
    batched[system], shares = paper.simulate(config, calls)
    used[system] = shares[0]
    there = paper.FIGURE_13["ShareGPT"][system], paper.FIGURE_2[system][0]
    print(f"{system:14} {batched[system]:5.1f}    {there[0]:5.1f}     {shares[0]:4.0f} %     {there[1]:4.0f} %")
reveal("02.batched", round(batched["vLLM"]), "requests")

# %%
print("paging batches at least 4 times as many as Max:", batched["vLLM"] > 4 * batched["Orca (Max)"])
print("and at least twice as many as the oracle:", batched["vLLM"] > 2 * batched["Orca (Oracle)"])

# %% [markdown]
# **Look at the oracle.** It knows every answer's length in advance, and still has only 40 % of its memory in use:
# what it reserves for later lies empty until then, and the buddy allocator rounds up. No guess, however good, mends
# that. Paging does not guess.
#
# (Scheduler, allocators and tables are this engine's. Time is simulated: two of its numbers are fitted to the two rows
# of vLLM, and how far the answers' lengths spread to the paper's Figure 2, so only the rows of Orca are a forecast. Our
# lengths share their means with the real traffic and no more. `python -m minivllm experiment paper` gives the whole table
# with its notes, for Alpaca too.)
#
# ## Break it: it fits on paper
#
# 24 slots. A and C need 8 for a moment, B needs 8 for longer, D needs 16. When A and C are gone, 16 slots are free,
# and D should start. Should it?

# %%
LIVES = {"A": (6, 2), "B": (2, 6), "C": (6, 2), "D": (10, 6)}  # prompt, answer


def third_tick(order, **options):
    """Let them arrive in this order; raises if D still cannot start when A and C are gone."""
    engine = Engine(EngineConfig(num_blocks=24, block_size=1, max_model_len=24).replace(**options))
    log = engine.record()
    for name in order:
        engine.add([1] * LIVES[name][0], exactly(LIVES[name][1]), request_id=name)
    engine.run(max_steps=3)
    for event in log.events_of(3):
        if isinstance(event, ev.Wait):
            raise MemoryError(line(event))
    print(f"{order}: D runs, {len(engine.snapshot().request('D').table)} slots")


# %%
oracle = {"kv_layout": "contiguous", "reservation": "oracle", "allocator": "first-fit"}
third_tick("ACBD", **oracle)
with expect(MemoryError, match="largest hole has 8"):
    third_tick("ABCD", **oracle)

# %% [markdown]
# The same four requests, the same memory, the same policy: only B and C came in another order. First-fit puts B in
# the middle, and B stays. The sum of the free slots is 16 both times. On paper it fits.

# %%
third_tick("ABCD", enable_prefix_caching=False)

# %% [markdown]
# Paged, D does not care where its slots lie. And it holds 11, not 16: the prompt and one of its two new tokens; the
# newest has no K and V yet. (It had begun in the first tick already, and made room for the others in the second:
# chapter 05.)
#
# One more: a reservation that no empty memory can hold is refused at the door, with a reason. Here the prompt has 10
# tokens, but Max reserves 1,024 for it, and there are only 1,000 slots.

# %%
with expect(ValueError, match="no extent of the empty pool can hold"):
    Engine(EngineConfig(kv_layout="contiguous", block_size=1, num_blocks=1000, max_model_len=1024)).add([1] * 10)

# %% [markdown]
# ## Quiz
#
# **1.** Max, a model with 4,096 tokens, requests of 400. Somebody doubles the longest length the model allows. How
# many requests run now?
#
# <details><summary>Answer</summary>
# Half as many, though no request has changed. Max pays for what is allowed, not for what is used.
# </details>
#
# **2.** An oracle tells every answer's length. Which of the three kinds of waste is gone?
#
# <details><summary>Answer</summary>
# Internal waste. What will be written later still lies empty until then, and holes still come when requests of
# different lengths leave.
# </details>
#
# **3.** Could one move the requests together, to close the holes?
#
# <details><summary>Answer</summary>
# Yes: compaction. It copies gigabytes of K and V while everybody waits, again and again. Paging makes it unnecessary.
# </details>
#
# **4.** “Our new layout halves peak memory.” What do you ask?
#
# <details><summary>Answer</summary>
# Of what: with the weights or without? When: at the peak, or on average? And for which lengths? Best of all: how many
# requests run in the same memory?
# </details>
#
# ## What you have measured
#
# | | |
# | --- | --- |
# | eight requests, 1,024 reserved each | 76 % never written |
# | 560 slots at tick 26, in use: Max / Pow2 / Oracle / Paged | 42 / 42 / 54 / 86 % |
# | a refusal | asks for 79, largest hole 78, free 190 |
# | half the memory, steps: Max / Paged | +90 / +4 % |
# | ShareGPT, requests batched: Max / Pow2 / Oracle / Paged | 7 / 10 / 14 / 35 |
# | waste by kind | reserved: later · internal: never · external: holes |
#
# **Where do the gigabytes go?** Into promises. On ShareGPT's traffic, with the longest answer reserved, a fifth of the
# memory holds tokens. And what a cleverer guess saves, the holes take back: even an oracle stays below half there.

# %%
progress("02")

# %% [markdown]
# **Read the real thing.** All three rules and both allocators are
# [`minivllm/core/contiguous.py`](../minivllm/core/contiguous.py), one interface with the paged manager, so the same
# scheduler drives both. vLLM never had a contiguous layout; what it does in its place is
# [`vllm/v1/core/kv_cache_manager.py`](https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/core/kv_cache_manager.py),
# `allocate_slots`: it counts blocks, compares with how many are free, and never looks for a hole.
#
# **Next:** [03 · Block tables](03_block_tables.ipynb) How can a text be read that lies in pieces, anywhere?

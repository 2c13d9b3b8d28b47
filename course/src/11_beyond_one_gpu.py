# %% [markdown]
# # 11 · Beyond one GPU
#
# **There are two ways to use N GPUs. Cut every block into N parts, and they are one engine with one cache. Or give
# each an engine of its own, and they are N caches that know nothing of each other.**
#
# You will be able to
#
# - compute what a token of K/V costs per GPU, and why N cards can hold more than N times the tokens;
# - follow a step through several ranks: one plan, the same table everywhere, and sums to bring them together;
# - say when those sums cost more than they save;
# - choose a router by hits, by time to the first token and by balance;
# - decide whether a preempted request is carried away or computed again.
#
# | needs | time | device |
# | --- | --- | --- |
# | chapters 05, 07 and 08 | 50 min | CPU; about 20 seconds of computing |
#
# **What changes with N GPUs and N replicas?** We begin with a card that is nearly full.

# %%
import inspect
from dataclasses import replace
from statistics import mean

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.bench.shapes import SHAPES, bytes_of_weights, kv_bytes
from minivllm.lab import check, expect, hint, predict, progress, reveal
from minivllm.lab.device import TimeModel
from minivllm.lab.fleet import Fleet
from minivllm.lab.routers import LeastLoaded, PrefixAffinity, RandomRouter, RoundRobin
from minivllm.lab.ranks import RankedOps
from minivllm.lab.ranks import kv_heads_per_rank as heads_per_rank  # the name is yours in an exercise
from minivllm.lab.recorded import recorded
from minivllm.lab.swap import Swap
from minivllm.lab.workloads import Call, agent, chat
from minivllm.model import load
from minivllm.model.spec import ModelSpec
from minivllm.viz import FleetView, RanksView

# %% [markdown]
# Qwen3-32B fills most of a card of 80 GB with its weights. This is what is left for K and V:

# %%
CARD = 0.9 * 80e9  # bytes that an engine may use: 90 % of 80 GB
large = ModelSpec.from_hf(  # Qwen3-32B: as its small sister, but for these
    SHAPES["qwen3-0.6b"]
    | {"hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 64, "intermediate_size": 25600}
    | {"tie_word_embeddings": False}
)
weights = bytes_of_weights(large) + 2 * large.vocab_size * large.hidden_size  # and the embedding
print(f"weights {weights / 1e9:.1f} GB, K and V {kv_bytes(large):,} bytes per token")
print(f"room for {int((CARD - weights) / kv_bytes(large)):,} tokens")

# %%
predict(
    "11.two",
    "Two such cards, each with half of every weight and half of every token's K and V. How many times the tokens?",
    unit="times",
)

# %% [markdown]
# ## A block in N parts
#
# **Tensor parallelism** cuts each layer by heads. Each GPU is a **rank**: it has its share of the query heads, of the
# KV heads, and of the columns of the MLP. So of each token, a rank keeps the K and V of its own heads. For
# Qwen3-0.6B: 28 layers, 8 KV heads of 128 numbers, two bytes each.

# %%
predict("11.tp2", "114,688 bytes per token on one GPU. Per GPU, with two?", unit="bytes")

# %%
predict("11.tp8", "With eight?", unit="bytes")

# %%
predict("11.tp16", "With sixteen?", unit="bytes")

# %%
small = ModelSpec.from_hf(SHAPES["qwen3-0.6b"])
per_rank = {}
print("GPUs   q heads   kv heads   bytes per token and GPU")
for ranks in (1, 2, 4, 8, 16):
    heads = heads_per_rank(small.num_kv_heads, ranks)
    per_rank[ranks] = kv_bytes(replace(small, num_kv_heads=heads))
    print(f"{ranks:4} {small.num_heads // ranks:9} {heads:10} {per_rank[ranks]:25,}")
reveal("11.tp2", per_rank[2], "bytes")
reveal("11.tp8", per_rank[8], "bytes")
reveal("11.tp16", per_rank[16], "bytes")

# %% [markdown]
# **Look at the last row.** There are 8 KV heads, and 16 ranks that need one. A head cannot be cut, so two ranks hold
# a **copy** of the same one. From there on, more GPUs make the cache of each no smaller.
#
# Now the cards of the beginning. A rank holds a part of the weights, too:


# %%
def pool_tokens(ranks):
    """Tokens in the pool of Qwen3-32B, which is the same on every rank."""
    own = replace(large, num_kv_heads=heads_per_rank(large.num_kv_heads, ranks))
    return int((CARD - weights / ranks) / kv_bytes(own))


print("GPUs   weights each   K/V room each   tokens      times")
for ranks in (1, 2, 4, 8, 16):
    own = weights / ranks / 1e9
    times = pool_tokens(ranks) / pool_tokens(1)
    print(f"{ranks:4} {own:11.1f} GB {CARD / 1e9 - own:12.1f} GB {pool_tokens(ranks):9,} {times:8.1f}")
reveal("11.two", pool_tokens(2) / pool_tokens(1), "times")

# %% [markdown]
# The weights are there once, however many cards there are. What the second card brings is all for the cache.
# (Activations, and the weights of copied heads, are left out here.) **Look at 8 and 16**: the cache of a token is no
# smaller, so all that is gained is what the weights give up.
#
# The same as a picture. **Look at the heads of each rank, and at its bar**: first the weights, then the room for K
# and V. Choose other numbers of GPUs; at 16 the copies are marked. (What an all-reduce is comes in a moment.)

# %%
cuts = RanksView(
    layers=large.num_layers, q_heads=large.num_heads, kv_heads=large.num_kv_heads, head_dim=large.head_dim,
    hidden=large.hidden_size, weights=weights, memory=CARD, ranks=2, title="Qwen3-32B on cards of 80 GB",
)  # fmt: skip
cuts.show()

# %%
cuts.ranks = 16
print(cuts.sentence)
print("as in the table:", cuts.pool_tokens == pool_tokens(16))

# %% [markdown]
# ## One plan, N ranks
#
# Here is tensor parallelism in our engine. The ranks are slices of one process's tensors. Real are the arithmetic,
# the tables of each rank, and the sums. What is *not* here, and not measured in this chapter, is the wire between
# GPUs. SmolLM2 has 9 query heads and 3 KV heads, so three ranks can share it:

# %%
model = load("packaged", dtype="float32", device="cpu")


def answer(ranks, meddle=None):
    """The text of two requests, and the operations that computed it."""
    ops = RankedOps(ranks, model)
    engine = Engine(EngineConfig(block_size=4, num_blocks=64, device="cpu"), model=model, kernels=ops)
    ops.listen(engine)  # every plan is broadcast
    if meddle:
        meddle(ops)
    greedy = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    names = [engine.add(text, greedy) for text in ("The capital of France is", "Once upon a time there was a")]
    engine.run()
    return [engine.result(name).outputs[0].text for name in names], ops


# %%
predict(
    "11.sums",
    "No rank has all the heads, so what they have must be summed now and then (see the picture, for 64 layers). "
    "Here are 30 layers and 12 steps: how many sums?",
    unit="sums",
)

# %%
alone, _ = answer(1)
together, ops = answer(3)
print("one rank:   ", alone)
print("three ranks:", together)
reveal("11.sums", ops.all_reduces, "sums")

# %% [markdown]
# The same text. Each rank computes its heads without asking anybody. But the matrix after attention (`o`) mixes all
# heads, so each rank has only a part of that sum, for every number of the hidden state. The parts are added up, and
# everybody gets the result: an **all-reduce**. The MLP ends in a second one. Two per layer, 60 per step:

# %%
print(inspect.getsource(RankedOps.linear))

# %%
tokens = (5 + 11) + (7 + 11)  # prompts, and what was fed back
print("bytes summed:", f"{ops.all_reduce_bytes:,}", "· per token:", f"{ops.all_reduce_bytes // tokens:,}")
print("2 per layer × 30 layers × 576 numbers × 4 bytes:", f"{2 * 30 * 576 * 4:,}")

# %% [markdown]
# (vLLM cuts the embedding and the output layer as well, by vocabulary: one more all-reduce at the start of a step,
# and a gather at its end. Ours are computed once.)
#
# ## The same table everywhere
#
# Who decides which block is taken? One scheduler. Its plan goes to all ranks, and each brings its own copy of the
# tables up to date:

# %%
for rank in ops.ranks:
    table = list(rank.tables["A"].values())
    heads = f"q heads {rank.q.start}-{rank.q.stop - 1}, kv head {rank.kv.start}"
    print(f"rank {rank.number}: {heads}, table of A {table}")
print("they disagree on:", ops.disagreements())

# %% [markdown]
# The numbers are the same on every rank; what lies in the blocks is not. Block 0 is on each GPU, and holds the same
# four tokens there, of that rank's heads. So one block pool, one free queue and one prefix cache are enough for all
# of them: a hit is a hit everywhere. Nothing in chapters 03 to 07 has to be done twice.
#
# (Every rank needs as many blocks as the others, so the one with the least free memory decides for all.)
#
# ## Break it: a rank that missed the news
#
# Rank 1 hears of every request that starts, and of no block that a running one gets.


# %%
def deaf(ops):
    hear = ops.ranks[1].hear
    ops.ranks[1].hear = lambda plan: hear(replace(plan, grown=()))


predict("11.deaf", "What happens?", choices=["an error", "wrong text from the start", "right at first, then wrong"])

# %%
broken, deaf_ops = answer(3, deaf)
print("right: ", alone)
print("broken:", broken)
for line in deaf_ops.disagreements()[:3]:
    print(line)
reveal("11.deaf", "right at first, then wrong")

# %% [markdown]
# No error. Two ranks of three read what they should. The third reads block 0 where its table was never written, and
# *writes* there too. The text reads well and goes somewhere else. That is the stale table of chapter 03 on a third of
# the heads, and the cure is the same: what changes a table travels with the plan.
#
# Not every number of ranks will do:

# %%
with expect(ValueError, match="cannot share 9 query heads"):
    RankedOps(2, model)

# %% [markdown]
# ## What the sums cost
#
# An all-reduce costs something for beginning at all (all ranks must have arrived), and something per byte. The two
# numbers below are **assumptions**, not measurements. Put in those of your machine.

# %%
BEGIN, LINK = 10e-6, 450e9  # seconds for each all-reduce, bytes per second
message = 2 * small.hidden_size  # bytes of one token's hidden state, 16 bit
count = 2 * small.num_layers
predict(
    "11.latency",
    "Qwen3-0.6B on two GPUs: whose step is mostly waiting for sums to begin, not sending?",
    choices=["a decode's", "a prompt's of 8,192 tokens", "both"],
)

# %%
print(f"{count} all-reduces per step")
print("tokens in the step   bytes each   beginning    sending")
for tokens in (1, 64, 256, 2048, 8192):
    size = tokens * message
    print(f"{tokens:18,} {size:12,} {1e3 * count * BEGIN:8.2f} ms {1e3 * count * size / LINK:7.3f} ms")
print(f"as much of each at {BEGIN * LINK / message:,.0f} tokens")
reveal("11.latency", "a decode's")

# %%
run = recorded("h200-engine")
step = run.of("decode step")[0]
prompt = next(row for row in run.of("time to first token") if row["shared"] == 3800)
tokens = prompt["shared"] + prompt["own"]
sums = 1e3 * count * (BEGIN + tokens * message / LINK)
print(f"recorded on one H200: a decode of one request {step['ms']:.2f} ms")
print(f"{tokens:,} tokens of prompt {prompt['cold ms']} ms; their sums would take {sums:.1f} ms")

# %% [markdown]
# **Look at the column *beginning*.** It is the same for one token and for 8,192. A decode step sends next to
# nothing, and pays 56 times for beginning: 0.56 ms, if the assumption holds. The whole step takes 0.81 ms on one GPU,
# so two can save 0.41 ms at the very most. For this model, tensor parallelism then makes a single answer *slower*.
# The prompt is another matter: its sums take 1.5 ms, and up to half of its 12 ms can be saved.
#
# A model that does not fit, or whose cache does not, has to be cut. One that fits can be **replicated** instead, and
# waits for no sums.
#
# ## N replicas
#
# A **replica** is a whole engine: its own scheduler, pool and prefix cache. In front of them stands a **router**,
# which decides once per request. Four simulated replicas on the slow device of chapter 08, with people who chat (64
# conversations) and programs (24 agents):

# %%
predict(
    "11.random",
    "One replica with room for everything finds 88 % of the chats' tokens. Four and a random router?",
    unit="%",
)

# %%
SLOW = TimeModel(step=20e-3, row=50e-6, prefill=200e-6, context=0.2e-6)
TRAFFIC = {"chat": chat(conversations=64, rate=4.0), "agent": agent(sessions=24, rate=2.0)}


def served(router, calls, n=4, blocks=384):
    fleet = Fleet(n, EngineConfig(num_blocks=blocks, max_num_seqs=16), router, SLOW)
    fleet.serve(calls)
    return fleet


print("traffic  router            hits   first token: mean and worst   balance   unused")
fleets = {}
for kind, calls in TRAFFIC.items():
    for router in (RandomRouter(), RoundRobin(), LeastLoaded(), PrefixAffinity()):
        name = type(router).__name__
        fleets[kind, name] = fleet = served(router, calls)
        waits = f"{1e3 * mean(fleet.ttft):11.0f} ms {1e3 * fleet.ttft[-1]:9.0f} ms"
        print(f"{kind:8} {name:14} {100 * fleet.hit_rate:5.1f} % {waits} {fleet.balance:14.2f} {fleet.unused:8}")

# %%
reveal("11.random", round(100 * fleets["chat", "RandomRouter"].hit_rate), "%")

# %% [markdown]
# **Balance** is the largest share of the computed tokens that one replica had, times the number of replicas: 1.00 is
# even. **Look at the chats.** The first three routers look at nothing, at turns, or at the load, and all find about
# the same, which is little. The fourth asks each replica what it knows, and finds about what one replica with room
# for everything finds. **Look at the agents, and at the last column**: there it pays with balance. Their two
# descriptions of tools draw everybody to where they are known, and one replica of four has nothing to do.
#
# ## Break it: a random router
#
# Why do hits fall? A second turn can use the first one only where that was computed. Let us count how often it goes
# to the replica that knows most of it. The pools are large, so nothing is evicted.

# %%
predict(
    "11.eight", "Eight replicas, random: which share of the chats' follow-up turns goes to who knows most?", unit="%"
)


# %%
def best_known(fleet):
    """Percent of the follow-up turns that went to a replica which knew as much as any."""
    turns = [r for r in fleet.routed if not r.call.endswith(".0")]
    return 100 * mean(r.found[r.replica] == max(r.found) for r in turns)


print("replicas   chat: best known   hits    agent: best known   hits")
for n in (1, 2, 4, 8):
    talk, work = (served(RandomRouter(), TRAFFIC[kind], n, blocks=2048) for kind in ("chat", "agent"))
    row = [f"{best_known(fleet):12.0f} % {100 * fleet.hit_rate:8.1f} %" for fleet in (talk, work)]
    print(f"{n:8} {row[0]} {row[1]:>24}")
reveal("11.eight", round(best_known(talk)), "%")

# %% [markdown]
# One half, one quarter, one eighth, more or less: chance. The hits fall more slowly, since the system prompt and the
# tools are soon known to everybody, each replica having computed them once. But every conversation is read again
# wherever it comes. Nothing is broken in any engine. Each has a low hit rate, and nothing in its log says that
# another one knew the prompt.
#
# ## Affinity against load
#
# So always to whoever knows most? Here is a manual, and everybody has a question about it, 25 of them in a second:

# %%
MANUAL = [Call(f"reader{n}", 0.04 * n, (("manual", 480), (f"question {n}", 16)), 40) for n in range(120)]
predict("11.manual", "Longest match, whatever the load. How much of the work does one of four replicas do?", unit="%")

# %%
print("allowed    manual: hits   first token   balance   chat: hits   evicted   unused")
for slack in (0, 4, 1000):
    one_text, talk = (served(PrefixAffinity(slack), calls) for calls in (MANUAL, TRAFFIC["chat"]))
    row = f"{100 * one_text.hit_rate:13.1f} % {1e3 * mean(one_text.ttft):10,.0f} ms {one_text.balance:9.2f}"
    counts = [replica.metrics for replica in talk.replicas]
    evicted = sum(m.evictions for m in counts)
    print(f"{slack:4} more {row} {100 * talk.hit_rate:10.1f} % {evicted:9} {talk.unused:8}")
reveal("11.manual", round(100 * one_text.balance / 4), "%")

# %% [markdown]
# **Look at the last row.** Whoever was asked first knows the manual, so gets all the questions, and the others never
# learn it. Hits are best, and the first token takes 1.1 s. Even the chats lose: each of their three system prompts
# draws its conversations to one place, one replica is never used, and the others must evict what they would need.
# **Look at the first row**: who gives up at the first difference in load loses the conversations.
#
# A router needs **both**, affinity and a limit. Ours passes over a replica that has more than four requests above the
# least loaded. Then another reads the manual, once, and from then on knows it too.
#
# ## Watch it decide
#
# Twelve conversations. Each tick of this view is one decision: what every replica would have found, how busy it is,
# and where the request goes. The same calls with a random router are a key away (`r`), and `m` jumps to the next
# request that was computed again although a replica knew it.

# %%
few = chat(conversations=12, rate=4.0)
routers = {"affinity": PrefixAffinity(slack=2), "random": RandomRouter()}
view = FleetView({name: served(router, few, n=3) for name, router in routers.items()}, title="three replicas")
view.tick = 17
view.show()

# %% [markdown]
# The picture shows decision 17. **Look at the outlined replica**, and at what each one knows. Decision 18, the next,
# is the second turn of a conversation, 286 tokens. This router allows two requests more than the least loaded:

# %%
view.router, view.tick = "affinity", 17  # back to it, if you have stepped on
coming = view.fleet.routed[17]
for replica in view.fleet.replicas:
    n = replica.number
    print(f"replica {n} would find {coming.found[n]} tokens and has {coming.loads[n]} requests")
predict("11.next", "Where does it go?", choices=["to the one that knows it", "to an idle one"])

# %%
view.tick = 18
print(view.sentence)
reveal("11.next", "to an idle one" if view.decision.replica < 2 else "to the one that knows it")

# %% [markdown]
# ## Exercises
#
# **1. The heads of a rank.** How many KV heads does each of `ranks` ranks hold? An equal share where that works, one
# where there are more ranks than heads and the copies come out even, and a `ValueError` where neither does. Stuck?
# `hint("11.kv_heads")`, then `2` and `3`.


# %%
def kv_heads_per_rank(kv_heads, ranks):
    return ...


check("11.kv_heads", kv_heads_per_rank)

# %% [markdown] tags=["solution:11.kv_heads"]
# <details><summary>Solution</summary>
#
# ```python
# def kv_heads_per_rank(kv_heads, ranks):
#     if kv_heads % ranks and ranks % kv_heads:
#         raise ValueError(f"{ranks} ranks cannot share {kv_heads} KV heads")
#     return max(1, kv_heads // ranks)
# ```
#
# `max(1, …)` is all there is to copies. vLLM has the same line, and the same refusals.
#
# </details>

# %% [markdown]
# **2. A router.** `route` gets the prompt and the replicas, and returns the place of one: 0, 1, 2 or 3.
# `replica.match(prompt)` is the number of tokens it would find, `replica.load` the number of its requests. Your
# router is run with four replicas and traffic that you have not seen: conversations, which need 80 % hits and a
# balance of 1.6 at most, and a manual that everybody asks about, where the first token may take 0.1 s. Among equals,
# the least loaded must get the call.


# %%
class Mine:
    def route(self, prompt, replicas):
        return ...


check("11.route", Mine)

# %% [markdown] tags=["solution:11.route"]
# <details><summary>Solution</summary>
#
# ```python
# class Mine:
#     def route(self, prompt, replicas):
#         least = min(replica.load for replica in replicas)
#         free = [n for n in range(len(replicas)) if replicas[n].load <= least + 4]
#         return max(free, key=lambda n: (replicas[n].match(prompt), -replicas[n].load))
# ```
#
# The second line is the limit, the third the affinity, and `-load` decides among equals, which is where all new
# conversations go. A real router cannot look into the caches for every request: it keeps a copy of what each replica
# has published, or only remembers what it has sent where.
#
# </details>

# %% [markdown]
# ## Away and back, or once more?
#
# One more place to put K/V: the host's memory. When a request is preempted (chapter 05), our engine gives its blocks
# back, and **recomputes** what is not in the cache any more. One could **swap**: carry the blocks to the host and
# back. What is sooner? Each block lies somewhere else, and each layer's K and V too, so each is a transfer of its
# own. Take an 8B model (32 layers, 128 KB per token). Once more, three numbers are **assumptions**: a link of 25
# GB/s, 10 µs for each transfer, 27 µs of prefill per token.

# %%
predict("11.swap", "1,024 tokens in blocks of 16: which is sooner?", choices=["swap", "recompute"])

# %%
machine = Swap(layers=32, kv_bytes=131_072, link=25e9, transfer=10e-6, prefill=27e-6)
print("block_size        swap   recompute")
for size in (4, 16, 64, 128, 256):
    swap, recompute = machine.swap_seconds(1024, size), machine.recompute_seconds(1024)
    print(f"{size:10} {1e3 * swap:8.1f} ms {1e3 * recompute:8.1f} ms")
print(f"the same at a block_size of {machine.break_even():.0f}")
reveal("11.swap", "recompute" if machine.recompute_seconds(1024) < machine.swap_seconds(1024, 16) else "swap")
print("with a link of 8 GB/s, never:", Swap(link=8e9).break_even() == float("inf"))

# %% [markdown]
# **Look at the right column**: blocks do not matter to it. The left one falls with the block size, until only the
# bytes are left. With a slow link not even that is enough: two ways through it take longer than the prefill, at any
# block size.
#
# > **Checked against the paper.** The overhead of recomputing is the same for all block sizes; swapping is slow with
# > small blocks, since each is a transfer of its own and the link is never filled (Kwon et al. 2023, §7.3). There it
# > was measured. The arithmetic has the same shape, and where the two cross depends on the numbers.
#
# ## Quiz
#
# **1.** A model has 4 KV heads. You go from 4 GPUs to 8. What happens to the K/V of a token on each GPU?
#
# <details><summary>Answer</summary>
# Nothing. Each rank had one head and still has one, now held twice. The pool grows only by what the weights give up.
# </details>
#
# **2.** Can a prefix be cached on rank 0 and not on rank 1?
#
# <details><summary>Answer</summary>
# Not while the tables agree. A name belongs to a block number, and that block holds its part on every rank. On two
# replicas it is the normal case.
# </details>
#
# **3.** You go from one replica to four, behind a round-robin router, and the time to the first token goes up with
# the load unchanged. What do you look at?
#
# <details><summary>Answer</summary>
# The hit rate, over all replicas. Every conversation is read again wherever it comes.
# </details>
#
# **4.** Hits are excellent, the mean is good, and one replica of four has a long queue. What has the router
# forgotten?
#
# <details><summary>Answer</summary>
# The load. The best place for one request is not the best place for all of them.
# </details>
#
# ## What you have measured
#
# | | |
# | --- | --- |
# | Qwen3-0.6B, K/V of a token per GPU, 1 / 2 / 4 / 8 / 16 GPUs | 114,688 / 57,344 / 28,672 / 14,336 / 14,336 bytes |
# | Qwen3-32B, tokens in the pool, two cards of 80 GB instead of one (computed) | 12.1 times |
# | all-reduces of a step | 2 per layer |
# | chats on 4 replicas, random / affinity (simulated) | 59 / 87 % hits, first token after 63 / 40 ms |
# | follow-up turns of chats that reach the replica that knows most, 2 / 4 / 8 replicas, random | 54 / 27 / 16 % |
# | one manual, longest match without a limit (simulated) | one replica does all the work, first token after 1.1 s |
#
# **What changes with N GPUs and N replicas?** With N ranks, nothing for the scheduler: one plan, one table, one
# cache, of more than N times the tokens as long as there are KV heads to share out, and two sums per layer to pay for
# it. With N replicas, nothing for the engine, and all for the router: N caches are worth one only if each request
# goes where its beginning is.

# %%
progress("11")

# %% [markdown]
# **Read the real thing.** Ranks are in [`minivllm/lab/ranks.py`](../minivllm/lab/ranks.py), replicas in
# [`minivllm/lab/fleet.py`](../minivllm/lab/fleet.py), routers in
# [`minivllm/lab/routers.py`](../minivllm/lab/routers.py). In vLLM:
# [`vllm/model_executor/layers/linear.py`](https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/model_executor/layers/linear.py),
# `QKVParallelLinear` with its copies of KV heads, and `RowParallelLinear`, which ends in the all-reduce;
# [`vllm/distributed/parallel_state.py`](https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/distributed/parallel_state.py),
# the groups of ranks; and
# [`vllm/v1/core/kv_cache_utils.py`](https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/core/kv_cache_utils.py),
# `get_kv_cache_configs`, where all ranks get as many blocks as the poorest can hold.
#
# **Next:** [the map of the course](README.md). You can read vLLM's own scheduler now: begin with
# [`vllm/v1/core/sched/scheduler.py`](https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/core/sched/scheduler.py).

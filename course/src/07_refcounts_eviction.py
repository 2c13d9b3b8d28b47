# %% [markdown]
# # 07 · Reference counts and eviction
#
# **A block belongs to everybody whose table points at it. When the last of them leaves, nothing is erased: the block
# becomes a candidate, and keeps its content until somebody needs the room.**
#
# You will be able to
#
# - say of any block who holds it, and whether it can be taken;
# - predict which block goes first, and say why;
# - write the queue that decides it, in constant time;
# - write an eviction order of your own and see the engine run it;
# - recognise a reference that nobody owns, a block freed twice, and a cache that is too small.
#
# | needs | time | device |
# | --- | --- | --- |
# | chapters 03 and 06 | 50 min | CPU; a few seconds of computing |
#
# **Who owns a block, and who dies first?** Four requests begin with the same 24 tokens, six blocks of four. Their tables
# have 28 entries. How many blocks is that?

# %%
import random

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.core.eviction import FIFO, LRU
from minivllm.lab import check, expect, hint, predict, progress, reveal
from minivllm.viz import QueueView


def greedy(n):
    return SamplingParams(temperature=0, max_tokens=n, ignore_eos=True)


def table_entries(engine):
    return sum(len(request.table) for request in engine.snapshot().requests)


# %%
predict(
    "07.shared", "Four tables of 7 blocks, the first 6 the same for all. How many blocks are in use?", unit="blocks"
)

# %%
shared = Engine(EngineConfig(block_size=4, num_blocks=24))
owners = QueueView(shared, title="who owns what")
system = list(range(100, 124))
for n, answer in enumerate((6, 14, 22, 30)):
    shared.add([*system, n], greedy(answer))
    owners.step()  # A computes the beginning, the others find it
print("entries in the tables:", table_entries(shared))
reveal("07.shared", len(owners.in_use), "blocks")
owners.show()

# %% [markdown]
# **Look above the blocks**: six of them belong to A and three more, and the number below counts the owners. That is all
# a **reference count** is: how many tables point here. A hit adds one, a request that ends takes one away from each
# block of its table. The letters are for you. The engine keeps only the number.

# %%
owners.tick = 4  # back to where we were, if you have stepped on
refs = [owners.in_use[block] for block in owners.snapshot.request("D").table]
print("references along D's table:", refs)

# %% [markdown]
# ## The end of a request
#
# When A ends, the six at the beginning still have three owners. What happens to blocks that have none? A request alone:

# %%
predict(
    "07.ends",
    "A request of 6 full blocks and one that is not full, alone, ends. How many keep their content?",
    unit="blocks",
)

# %%
alone = Engine(EngineConfig(block_size=4, num_blocks=12))
view = QueueView(alone, title="one request, and what it leaves")
alone.add(list(range(21)), greedy(5))
view.step(5)
now = view.snapshot
print("in use:", now.used, "· cached:", now.cached, "· free:", now.num_blocks - now.used - now.cached)
reveal("07.ends", now.cached, "blocks")

# %% [markdown]
# Full blocks have a name, and whoever begins like A may find them. The last one has none, so nobody could ever
# ask for it. It goes back to the free ones.
#
# > **Checked against the source.** "Reference count 0 does not free a block, it makes it a candidate", says the
# > article, and so it is. It adds that the least recently used candidate goes when the pool is full, and a
# > referenced one never. Both below. (nano-vllm, which it studies, and vLLM have one queue for free and cached blocks alike:
# > the longest unused goes first, empty or not.)
#
# ## Who dies first
#
# All blocks that can be taken stand in one line, the **free queue**. The free ones come first: there is nothing to lose.
# Then those with content:

# %%
predict(
    "07.first",
    "Of A's cached blocks, which is given up first?",
    choices=["the first of its text", "the last of its text"],
)

# %%
print("A's table was:            ", tuple(range(7)))
print("the queue, next one first:", view.queue)
reveal("07.first", "the last of its text")

# %%
view.show()

# %% [markdown]
# **Tail first.** Why? A prefix can be used only as far as it is whole *from the start*. Without its last blocks, it is
# a shorter prefix. Without its first block, it is nothing.
#
# Let us try the other way round. An eviction order is a class with five methods: `insert`, `remove`, `pop`, a length, and
# a way to walk through it. This one gives up the *youngest* candidate, which is the head of the last request:


# %%
class HeadFirst(LRU):
    def pop(self):
        youngest = list(self)[-1]
        self.remove(youngest)
        return youngest


def what_is_left(eviction):
    engine = Engine(EngineConfig(block_size=4, num_blocks=12), eviction=eviction)
    for prompt in (list(range(21)), list(range(200, 230)), list(range(21))):
        name = engine.add(prompt, greedy(5))
        engine.run()
    return engine.result(name).num_cached_tokens // 4


print("A asks again. Blocks found, tail first:", what_is_left(LRU), "· head first:", what_is_left(HeadFirst))

# %% [markdown]
# The other request in between took three of the six. Tail first, the other three are still of use. Head first, three
# blocks are still there too, and none of them can be found.
#
# ## Least recently used
#
# Between requests the rule is: who was used longest ago goes first. A hit takes a block out of the middle of the
# queue; when its request ends, it joins at the back. **First in, first out** does not care about hits. Here are 60
# requests. Every sixth begins with the same system prompt of 40 tokens, the others are read once and never again.

# %%
predict("07.rate", "A pool of 64 blocks. Which order finds more?", choices=["LRU", "FIFO", "both the same"])


# %%
def hit_rate(eviction, num_blocks, seed=0):
    rng = random.Random(seed)
    engine = Engine(EngineConfig(block_size=4, num_blocks=num_blocks), eviction=eviction)
    cached = total = 0
    for number in range(60):
        often = [*range(1000, 1040), *(rng.randrange(500) for _ in range(6))]
        once = [rng.randrange(500) for _ in range(rng.randint(20, 60))]
        name = engine.add(often if number % 6 == 0 else once, greedy(2))
        engine.run()
        result = engine.result(name)
        cached, total = cached + result.num_cached_tokens, total + len(result.prompt_token_ids)
    return 100 * cached / total


rates = {size: (hit_rate(LRU, size), hit_rate(FIFO, size)) for size in (32, 48, 64, 96, 128)}
print("pool      LRU     FIFO")
for size, (lru, fifo) in rates.items():
    print(f"{size:4} {lru:6.1f} % {fifo:6.1f} %")
reveal("07.rate", "LRU" if rates[64][0] > rates[64][1] else "FIFO")

# %% [markdown]
# **Look at the first row**: with 32 blocks, both find nothing. The system prompt is always gone before it is asked for
# again: five strangers take some 50 blocks in between. **Look at the last two rows of LRU**: more memory does not help any
# more. Between these two lies the size you need: room for the prompt itself, and for all that is read *between two
# uses*.
#
# > **Checked against the source.** "Too small a pool: evicted before reuse", says the article. So it is: with 32 blocks
# > nothing is found, with 48 blocks 5 %, with 64 blocks 14 %. For traffic closer to life:
# > `python -m minivllm experiment cache-size`.
#
# A referenced block stands in no queue, so it cannot be taken, whatever happens. Then somebody waits, or is preempted
# (chapter 05):

# %%
engine = Engine(EngineConfig(block_size=4, num_blocks=12))
for first in (0, 100):
    engine.add(list(range(first, first + 20)), greedy(8))
engine.add(list(range(200, 212)), greedy(2), request_id="late")
print(engine.step())
now = engine.snapshot()
print("waiting:", now.waiting, "· in use:", now.used, "of", now.num_blocks)

# %% [markdown]
# ## Exercises
#
# **1. The queue.** Blocks join at the back and are taken at the front. And one more thing: a hit takes a block out of
# the *middle*. A pool can have a million blocks, so nothing may search for it.
#
# `insert(block)` at the back · `remove(block)` from anywhere · `pop()` from the front, and give it back · `len()` ·
# iteration from front to back. Stuck? `hint("07.queue")`, then `2` and `3`.


# %%
class Queue:
    def __init__(self): ...

    def insert(self, block): ...

    def remove(self, block): ...

    def pop(self):
        return ...

    def __len__(self):
        return 0

    def __iter__(self):
        return iter(())


check("07.queue", Queue)

# %% [markdown] tags=["solution:07.queue"]
# <details><summary>Solution</summary>
#
# ```python
# from collections import OrderedDict
#
#
# class Queue:
#     def __init__(self):
#         self.order = OrderedDict()
#
#     def insert(self, block):
#         self.order[block] = None
#
#     def remove(self, block):
#         del self.order[block]
#
#     def pop(self):
#         return self.order.popitem(last=False)[0]
#
#     def __len__(self):
#         return len(self.order)
#
#     def __iter__(self):
#         return iter(self.order)
# ```
#
# `OrderedDict` remembers the order of insertion in a doubly linked list, and finds a block's place in it by its key: every
# method is one step. Our engine uses it; vLLM has such a list with the links inside the blocks. A plain dict keeps the order
# too, but `next(iter(…))` steps over every place that was emptied at the front: `check` sees pop become slower and slower.
#
# </details>

# %% [markdown]
# **2. An eviction order of your own.** LRU has a weakness: a flood of prompts that are read once washes everything
# away. Write an order that finds a fifth more than LRU on such traffic, and three quarters of what LRU finds in
# conversations. The same five methods. The engine calls `insert` when the last reference of a block goes, and `remove`
# when somebody hits it while nobody holds it: that is all you get to know, and it is enough.


# %%
class Mine:
    def __init__(self): ...

    def insert(self, block): ...

    def remove(self, block): ...

    def pop(self):
        return ...

    def __len__(self):
        return 0

    def __iter__(self):
        return iter(())


check("07.eviction", Mine)

# %% [markdown] tags=["solution:07.eviction"]
# <details><summary>Solution</summary>
#
# ```python
# from collections import OrderedDict
#
#
# class Mine:
#     def __init__(self):
#         self.once, self.again, self.hit = OrderedDict(), OrderedDict(), set()
#
#     def insert(self, block):
#         queue = self.again if block in self.hit else self.once
#         queue[block] = None
#         if len(self.again) > len(self.once):  # fame does not last for ever
#             oldest, _ = self.again.popitem(last=False)
#             self.once[oldest] = None
#             self.hit.discard(oldest)
#
#     def remove(self, block):
#         self.hit.add(block)
#         queue = self.again if block in self.again else self.once
#         del queue[block]
#
#     def pop(self):
#         queue = self.once or self.again
#         block, _ = queue.popitem(last=False)
#         self.hit.discard(block)  # what comes into it next is something else
#         return block
#
#     def __len__(self):
#         return len(self.once) + len(self.again)
#
#     def __iter__(self):
#         yield from self.once
#         yield from self.again
# ```
#
# What was hit once is likely to be hit again: it goes when nothing else is left. But at most half of the candidates are
# protected like that. Else what was popular yesterday would stay for ever, and what is young would go before anybody
# could hit it. This is *segmented LRU*.
#
# </details>

# %% [markdown]
# ## Break it: a hit that nobody wrote down
#
# What if a hit raises the count, but forgets to take the block out of the queue? (When the pool takes a block, it looks at
# its count once more.)


# %%
class Forgetful(LRU):
    def remove(self, block):
        pass  # "it has a reference, nobody will take it"


predict(
    "07.forget", "B hits A's blocks, then C needs room. What happens?", choices=["C waits", "an error", "wrong text"]
)

# %%
engine = Engine(EngineConfig(block_size=4, num_blocks=12), eviction=Forgetful)
engine.add(list(range(21)), greedy(5))
engine.run()
engine.add(list(range(21)), greedy(20), request_id="B")
engine.step()
print("the books:", engine.audit()[0])
with expect(ValueError, match="inserted and not removed"):
    engine.add(list(range(300, 330)), greedy(4), request_id="C")
    engine.run()
reveal("07.forget", "an error")

# %% [markdown]
# The pool saw a candidate with a count, and refused. Without that look, C would have written
# into a block that B reads, and B would have gone on in C's words: wrong text, no error. (You will meet that engine
# in chapter 10.)
#
# ## Break it: freed twice

# %%
engine = Engine(EngineConfig(block_size=4, num_blocks=12))
engine.add(list(range(21)), greedy(5))
engine.run()
pool = engine.scheduler.cache.pool
with expect(RuntimeError, match="double free"):
    pool.release(0, keep=True)

# %% [markdown]
# Its count would have gone to −1. The next hit raises that to 0: somebody reads the block, and it can be taken as if
# nobody did. And the opposite: a reference that nobody owns. It does no harm today. But the block never comes back, and
# after a thousand of them requests wait in front of a pool of which the tables hold only half:

# %%
pool.share(0)  # and nobody's table points there
for line in engine.audit():
    print(line)

# %% [markdown]
# > **Checked against the source.** "Out of memory while not full" has three causes in the article: candidates that are
# > not reclaimed, blocks that leak, a pool that is too small. `audit()` finds the first two, between any two ticks: it
# > counts the tables and compares. The third is no fault: see the table of hit rates above.
#
# ## Twins
#
# Two requests with the same prompt arrive in the same tick. Nothing is in the cache yet. Who shares with whom?

# %%
predict("07.twins", "Two equal prompts of 3 full blocks and one token, in one tick. Blocks in use?", unit="blocks")

# %%
engine = Engine(EngineConfig(block_size=4, num_blocks=12))
for _ in range(2):
    engine.add(list(range(13)), greedy(6))
engine.step()
reveal("07.twins", engine.snapshot().used, "blocks")
index = engine.scheduler.cache.index
print("names:", len(index.blocks), "· blocks of each:", [len(blocks) for blocks in index.blocks.values()])

# %% [markdown]
# Both compute, and each name then has two blocks. That is why the map from names to blocks holds a *set* for each
# name: when one twin's block is given up, the entry of the other must stay. A map with one block for each name would
# lose it, or keep a name for a block that holds something else by now.
#
# ## Quiz
#
# **1.** A block has ref 0 and a name. Is it free?
#
# <details><summary>Answer</summary>
# It can be taken, and it can be hit. Whichever comes first.
# </details>
#
# **2.** A pool has 100 blocks: 40 in use, 60 cached, 0 free. A prompt needs 50 new ones. Can it start?
#
# <details><summary>Answer</summary>
# Yes. "Cached" is memory that is useful while nobody needs it. 50 names are forgotten.
# </details>
#
# **3.** A new request hits 5 cached blocks and needs 3 more, and exactly 7 can be taken in all. Can it start?
#
# <details><summary>Answer</summary>
# No. Its 5 hits are among the 7: once it holds them, 2 are left. Whoever counts them twice starts it, and then takes a
# block that it has just hit.
# </details>
#
# **4.** Why does the engine reference the hits *before* it takes new blocks?
#
# <details><summary>Answer</summary>
# Because taking evicts. A request could give up the very blocks it is about to use.
# </details>
#
# ## What you have measured
#
# | | |
# | --- | --- |
# | four tables of 7 entries, 6 in common | 10 blocks |
# | a request of 6 full blocks and one that is not full ends | 6 cached, the last one free |
# | three of six blocks gone, tail first / head first | 3 / 0 can be used |
# | 64 blocks, LRU / FIFO | 13.6 / 7.5 % hits |
# | 32 blocks | nothing is ever found again |
# | twins in one tick | both compute; each name has two blocks |
#
# **Who owns a block?** Everybody whose table points at it. **Who dies first?** Of those that nobody owns: what is
# free, then what was used longest ago, and of one request the end before the beginning.

# %%
progress("07")

# %% [markdown]
# **Read the real thing.** Counts and queue are in [`minivllm/core/block_pool.py`](../minivllm/core/block_pool.py), the
# orders in [`minivllm/core/eviction.py`](../minivllm/core/eviction.py), and the books are checked in
# [`minivllm/core/audit.py`](../minivllm/core/audit.py). In vLLM:
# [`vllm/v1/core/kv_cache_utils.py`](https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/core/kv_cache_utils.py),
# `FreeKVCacheBlockQueue`, the linked list of exercise 1, and
# [`vllm/v1/core/block_pool.py`](https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/core/block_pool.py),
# `touch`, `free_blocks` and `_maybe_evict_cached_block`.
#
# **Next:** [08 · Tuning](08_tuning.ipynb) Which block size, which pool, which policy, for *your* traffic?

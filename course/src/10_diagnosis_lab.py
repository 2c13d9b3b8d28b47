# %% [markdown]
# # 10 · The diagnosis lab
#
# **An engine rarely says what is wrong with it. It says that answers are slow, or odd, or that memory is gone. What
# lies behind that can be found, in few steps, if you know which question splits the suspects.**
#
# You will be able to
#
# - read an engine's vital signs, and say which of twelve faults they rule out;
# - choose the one instrument that decides, and find the tick in which the fault can be seen;
# - name the cure, and say why it is not the other one;
# - write a leak detector, and a detective that finds all twelve without you;
# - make an engine ill on purpose, for somebody else to find out.
#
# | needs | time | device |
# | --- | --- | --- |
# | chapters 03, 06 and 07; the others help | 75 min | CPU; about 15 seconds of computing |
#
# **An engine is sick: what is it?** Here is one that answers four people. No error, no warning. This is what it says,
# and what it should have said:

# %%
from collections import Counter
from textwrap import fill

from minivllm import Engine, EngineConfig
from minivllm.core.policy import FCFS
from minivllm.lab import check, expect, hint, predict, progress, reveal
from minivllm.lab.faults import INSTRUMENTS, Patient, Visit, admit
from minivllm.lab.misses import explain_miss
from minivllm.lab.ward import CAUSES, CURES, Case, board, guess
from minivllm.lab.workloads import tokens_of
from minivllm.viz import EngineView

sick = Case(5)
sick.run()
for name in "AB":
    print(f"{name} said       {sick.said(name)}")
    print(f"  should say {sick.should_say(name)}")

# %% [markdown]
# It begins well, and then goes on with other tokens. Decoded, they would read like an answer.

# %%
predict(
    "10.dashboard",
    "Which figure of its dashboard will tell you?",
    choices=["hit rate", "preemptions", "time to first token", "none of them"],
)

# %%
print(*str(sick.metrics).splitlines()[:9], sep="\n")  # the rest is in seconds: other ones on every run
reveal("10.dashboard", "none of them")

# %% [markdown]
# Everything here is as it should be. Nobody would have woken you. You will meet this engine again in the ward, and
# then you will find it.
#
# ## What a doctor has
#
# For every patient: the **complaint** of its owner, its **vital signs**, the engine view with its time travel, and
# the **log** of any tick. All that is free. Then there are twelve instruments, `case.test("leaks")` and so on. The
# first one is free, each further one costs a point. Who makes all twelve tests finds everything, and has learnt
# nothing.

# %%
for name in INSTRUMENTS:
    print(name)

# %% [markdown]
# | instrument | asks |
# | --- | --- |
# | audit | do tables, reference counts, free queue and index agree? (chapter 07) |
# | leaks | which references does no table explain? |
# | tables | does the device have the same block tables as the scheduler? (03) |
# | nan | in which layer, for whom, does a value stop being a number? (04) |
# | inexact | where does attention differ from float32 by more than 2 %? (04) |
# | whole hits | did somebody start with every token cached? (06) |
# | broken prefixes | do prompts share their text, and not their beginning? (06) |
# | evicted too soon | was a block computed again after its eviction, by one who was not preempted? (07) |
# | ping-pong | how much of what was computed did preemptions throw away? (05) |
# | overtaken | did somebody wait while more than 40 later ones passed? (05, 08) |
# | wasted ends | how much of the held slots will never be written? (03) |
# | long tables | are there more than 32 blocks to a request, nearly one per token? (03) |
#
# A diagnosis has three parts: a **cause**, a **tick** in which it can be seen, and a **cure**. They earn four, three
# (with the right cause) and three points. Each diagnosis after the first costs one. There are more causes and cures than patients.

# %%
for cause, words in CAUSES.items():
    print(fill(f"{cause:20} {words}", 100, subsequent_indent=21 * " "))

# %%
for cure, words in CURES.items():
    print(fill(f"{cure:20} {words}", 100, subsequent_indent=21 * " "))


# %% [markdown]
# ## Two patients together
#
# Before you examine a patient, guess from the complaint alone where the fault is: in **settings or traffic** (nothing
# is broken, it only does not fit), in **the books** (tables, references, hits), or in **the numbers** that a kernel
# computes. The diagnosis will tell.

# %%
guess(1)


# %%
def meet(number):
    case = Case(number)
    view = EngineView(case.engine, title=f"patient {number}")  # from before the first tick on
    case.run()
    print(case)
    view.show()
    return case, view


case1, view1 = meet(1)

# %% [markdown]
# **Read it from the top.** Everybody is answered, nobody waits, no text is wrong. One line is out of the ordinary:
# not one hit, with a system prompt that all share. The pool cannot be to blame: nothing was evicted, so all that was
# computed is still there. So were the prefixes never the same? Compare two prompts, as token ids:

# %%
predict("10.first", "In which block will the two prompts differ first?", unit="")

# %%
a, b = case1.prompts["A"], case1.prompts["B"]
miss = explain_miss(a, b, block_size=8)
print(miss)
print("tokens 4 to 99 are the same:", a[4:100] == b[4:100])
reveal("10.first", miss.block)

# %% [markdown]
# The very first token. It is a clock again, four tokens long, as in chapter 06. The 96 tokens after it agree, and it
# does not help: a hash covers all that came before. Now the tick. The second request starts in tick 7, and there it
# can be seen:

# %%
case1.log(7)

# %%
case1.diagnose(cause="dynamic-prompt", tick=7, cure="stable-text-first")

# %% [markdown]
# Ten points, and no instrument was needed. The second patient is worse off:

# %%
guess(2)

# %%
case2, view2 = meet(2)

# %% [markdown]
# Thirty came. Six were answered, and twenty left before that. In the end four wait, and *nobody runs*: that is the
# line to stop at. They wait for memory. Who has it?

# %%
case2.log(120)

# %%
predict("10.lost", "In which of the 120 ticks was the first block lost?", unit="")

# %%
print("blocks with a reference:", sum(block.ref > 0 for block in case2.engine.snapshot().blocks), "of 16")
(finding,) = case2.test("leaks")
print(finding)
reveal("10.lost", int(finding.split(":")[0].removeprefix("tick ")))

# %% [markdown]
# Twelve blocks are held by nobody, and an instrument that looks at the engine after every tick saw it first in tick 7.
# (The line *pool* did not tell: like most dashboards it counts references, and a lost block has one.) What happened
# there?

# %%
case2.log(7)

# %%
view2.tick = 6
print("tick 6, B's table:", view2.snapshot.request("B").table)

# %% [markdown]
# B is aborted. Its table was 3, 4, 5, and it lets go of 4 and 3. (Tail first, as in chapter 07, but the tail is
# missing.) This is what "out of memory with memory free" looks like from inside. Aborts are rare in tests, and common
# on a Monday.

# %%
case2.diagnose(cause="leak", tick=7, cure="release-everything")

# %% [markdown]
# > **Checked against the source.** The article's list for "out of memory while not full" is: candidates not
# > reclaimed, blocks leaked, pool too small. The signs tell them apart. Where a pool is too small, somebody runs, and
# > when that one ends the next can begin. After a leak, nobody runs: whoever is first in line needs more than can ever be
# > had, and the others stand behind. Candidates that are not reclaimed do not occur here: taking a block *is* reclaiming one.
#
# ## The ward
#
# Ten patients are left. For each: read the signs, say what they rule out, look at the ticks that matter, choose an
# instrument if you need one, and fill in the three dots. A wrong diagnosis tells you what would have to be true. A
# hint and what it was are folded below each. The points are for you alone: `meet` a patient once more, and
# you begin with ten again.
#
# ### Patient 3

# %%
guess(3)

# %%
case3, view3 = meet(3)

# %%
# Your examination. Try case3.log(10), view3.tick = 10, case3.test("…")

# %%
case3.diagnose(cause=..., tick=..., cure=...)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Two figures of one line are far apart. Who is at the far end? Look at the log of tick 10, and at who is admitted
# after it.
#
# </details>
#
# <details><summary>What it was</summary>
#
# The median wait is one tick, the worst 266. Nothing is wrong for most, everything for a few. In the log, E arrives
# in tick 10 with a prompt of 100 tokens, and in tick 13 somebody is admitted who came later. So it goes on until no
# short prompt is left. `diagnose("starvation", 13, "ageing")`
#
# </details>
#
# ### Patient 4

# %%
guess(4)

# %%
case4, view4 = meet(4)

# %%
# Your examination.

# %%
case4.diagnose(cause=..., tick=..., cure=...)

# %% [markdown]
# <details><summary>Hint</summary>
#
# All of the pool is held. By how much text? Set the view to a tick in the middle and look into the blocks.
#
# </details>
#
# <details><summary>What it was</summary>
#
# All of the pool is held, and 27 % of what is held is in use. Each has one block, and eight run at a time because
# there are eight blocks. They are 256 slots long, and the requests are not. From tick 3 on somebody waits for memory
# while most of it is empty. `diagnose("huge-blocks", 3, "smaller-blocks")`
#
# </details>
#
# ### Patient 5
#
# You know this one. No figure tells; only the text is wrong, for all four.

# %%
guess(5)

# %%
case5, view5 = meet(5)

# %%
# Your examination.

# %%
case5.diagnose(cause=..., tick=..., cure=...)

# %% [markdown]
# <details><summary>Hint</summary>
#
# No figure speaks. But how many of the four are wrong, and from which token on? `case5.said("A")`,
# `case5.should_say("A")`.
#
# </details>
#
# <details><summary>What it was</summary>
#
# Wrong text without an error: the tables, a NaN, or a sum. All four are wrong, so it is hardly the length or one bad
# block. `case5.test("tables")` says: in tick 5 the scheduler gives A block 12 as its logical block 3, and the device
# still has a 0 there. From then on A writes into block 0, where its own beginning is, and B, C and D write there too.
# Two copies of one table, and one of them is not told. `diagnose("stale-table", 5, "send-table-changes")`
#
# </details>
#
# ### Patient 6

# %%
guess(6)

# %%
case6, view6 = meet(6)

# %%
# Your examination.

# %%
case6.diagnose(cause=..., tick=..., cure=...)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Compare with patient 1: there nothing was evicted. And did this one's prompts hit at first?
#
# </details>
#
# <details><summary>What it was</summary>
#
# Hits fall from 55 to 17 %, and there are 94 evictions. So the prefixes are the same; they are not there any more. In
# tick 51 K computes a block again that was evicted in tick 49. With a clock in the prompt, hits would be 0 from the
# beginning, however large the pool. `diagnose("small-pool", 51, "larger-pool")`
#
# </details>
#
# ### Patient 7

# %%
guess(7)

# %%
case7, view7 = meet(7)

# %%
# Your examination.

# %%
case7.diagnose(cause=..., tick=..., cure=...)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The log of the last tick. Read every number in it.
#
# </details>
#
# <details><summary>What it was</summary>
#
# It stops in tick 41. The log of that tick: F arrives with 8 tokens, hits two blocks of four, starts with 8 tokens
# from the cache, and prefills *0 tokens*. There is nothing to feed, and no row to sample from. Prompts of 7 and 9
# tokens went well. (Chapter 06: the last token is always computed.) `diagnose("whole-prompt-hit", 41,
# "leave-the-last-token")`
#
# </details>
#
# ### Patient 8

# %%
guess(8)

# %%
case8, view8 = meet(8)

# %%
# Your examination.

# %%
case8.diagnose(cause=..., tick=..., cure=...)

# %% [markdown]
# <details><summary>Hint</summary>
#
# What does the one customer have that the others do not? Code and settings are the same for all three.
#
# </details>
#
# <details><summary>What it was</summary>
#
# One of three is wrong. The other two have the same code and the same settings, so it is something that this one has:
# a block. `case8.test("nan")` names B, in layer 0, with 13 tokens: five of its second block's eight slots. Nobody
# ever wrote to the other three. They held a NaN, and 0 times NaN is NaN. From tick 2 on, B gets token 0.
# `diagnose("unmasked-tail", 2, "mask-values")`
#
# </details>
#
# ### Patient 9

# %%
guess(9)

# %%
case9, view9 = meet(9)

# %%
# Your examination.

# %%
case9.diagnose(cause=..., tick=..., cure=...)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Look at what each request took, and at how many tokens it has.
#
# </details>
#
# <details><summary>What it was</summary>
#
# Not one slot is wasted, and a request takes 144 blocks. That is one for each token: tables as long as the text, and
# a hash per token. In tick 1 alone, A takes 90. `diagnose("tiny-blocks", 1, "larger-blocks")`
#
# </details>
#
# ### Patient 10

# %%
guess(10)

# %%
case10, view10 = meet(10)

# %%
# Your examination.

# %%
case10.diagnose(cause=..., tick=..., cure=...)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The error has a number in it. Follow that block through the view: who had it, and since when?
#
# </details>
#
# <details><summary>What it was</summary>
#
# "Double free" means that a block had two owners and one reference. Which block? 3, says the error. In tick 15, C
# hits blocks 0 to 3; they had no reference and stood in the free queue, and there they stay. In tick 19 block 3 is
# the next in that queue, and C takes it as its block 6, although it is also its block 3. In tick 20 D takes block 2.
# `case10.test("audit")` sees it four ticks before any text is wrong. `diagnose("borrowed-block", 15, "hits-first")`
#
# </details>
#
# ### Patient 11

# %%
guess(11)

# %%
case11, view11 = meet(11)

# %%
# Your examination.

# %%
case11.diagnose(cause=..., tick=..., cure=...)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The pool is full, so somebody must go. Look at who goes, and how much that one had.
#
# </details>
#
# <details><summary>What it was</summary>
#
# Sixteen preemptions have thrown away 63 % of what was computed. The pool is full, so somebody must go. But the victim is
# whoever has computed *most*, and that is A, the report, every time. In tick 19 it loses 49 tokens; in tick 20 it is back
# and computes them again; in tick 21 it goes once more, with 50. Our engine would send the last: nine preemptions, a
# ninth of the work, and A is done in tick 40 and not in 78. `diagnose("ping-pong", 19, "preempt-the-last")`. (Or
# `larger-pool`, if you have one: some patients have more than one cure. This engine's prefix cache is off. With it, A would find
# most of what it had: 695 computed tokens in place of 1,463. But it would be done as late.)
#
# </details>
#
# ### Patient 12

# %%
guess(12)

# %%
case12, view12 = meet(12)

# %%
# Your examination.

# %%
case12.diagnose(cause=..., tick=..., cure=...)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `case12.said(name)` and `case12.should_say(name)` for each of the four. What do their prompts differ in?
#
# </details>
#
# <details><summary>What it was</summary>
#
# One of four is wrong, and it is one of the long ones. `case12.test("inexact")`: with 2,601 tokens attention is off
# by 17 to 19 %, for all three long ones, and nothing is NaN. In float16, 2,048 + 0.9 is 2,048: past that, the sum
# under the softmax stops growing. For two of them the best token is still the best, so only D's text is wrong, and no
# test of texts would have found the others. The prefill in tick 2 is another kernel; the first decode with so long a
# context is in tick 3. `diagnose("half-precision-sum", 3, "float32-sum")`
#
# </details>

# %%
board()

# %% [markdown]
# ## From the symptom to the suspect
#
# | what you see | suspect | what it is not |
# | --- | --- | --- |
# | peak memory far above the estimate | `block_size` too large | a leak: that grows with time |
# | throughput falls with paging | `block_size` too small | waste: every slot is used |
# | no hits, though prompts share text | dynamic text in front | the pool: a larger one changes nothing |
# | hits fall as users come | pool too small | the prompts: they did hit |
# | out of memory, and nobody runs | blocks not released | a small pool: somebody would run |
# | first token late for a few | starvation | load: the median would be late too |
# | busy, and little comes out | preemption ping-pong | a slow device |
# | all texts begin well and go wrong, no error | tables out of step | a kernel: it would not wait for the next block |
# | wrong text for one, others as long are right | unwritten memory, unmasked | its prompt |
# | wrong text for some of the longest, and for them only | a sum in half precision | tables: short texts would go wrong too |
# | an error about a block | books that were wrong long before | the tick of the error |
# | an error with a prompt of k whole blocks | a hit on all of it | the prompt: it works cold |
#
# > **Checked against the source.** Six of these rows are the article's. Its "high first-token latency under
# > concurrency: prefill and decode interleave" was chapter 05: chunked prefill bounds it, and the cost moves to
# > whoever has the long prompt.
#
# ## Exercises
#
# **1. A leak detector.** You get the reference counts, `refs[block]`, and the tables of all live requests by name.
# Return a dict: each block that has more references than the tables explain, and how many more. Stuck?
# `hint("10.leaks")`, then `2` and `3`.


# %%
def leaks(refs, tables):
    return ...


check("10.leaks", leaks)

# %% [markdown] tags=["solution:10.leaks"]
# <details><summary>Solution</summary>
#
# ```python
# def leaks(refs, tables):
#     owned = Counter(block for table in tables.values() for block in table)
#     return {block: refs[block] - owned[block] for block in range(len(refs)) if refs[block] > owned[block]}
# ```
#
# The engine's own one is `minivllm.core.audit.leaks`. It is as long.
#
# </details>

# %% [markdown]
# **2. A detective.** Write down your method as a program. It gets a case that has run, of which it sees the signs and the
# tests only, and returns the name of a cause. `case.signs` has the figures: `error` (None or a text), `unlike` (how many
# answers are wrong), `waiting` (at the end), `lost`, `hits_early`, `hits_late`, `in_use` (shares from 0 to 1),
# `median_wait`, `worst_wait` (ticks), `blocks` (per request). `case.test(name)` gives the lines of an instrument, and is
# counted. Find all twelve, with one test each on average.

# %%
print(case6.signs.hits_early > case6.signs.hits_late, case6.signs.error, case6.signs.unlike)


# %%
def detective(case):
    return ...


check("10.detective", detective)

# %% [markdown] tags=["solution:10.detective"]
# <details><summary>Solution</summary>
#
# ```python
# def detective(case):
#     signs = case.signs
#     if signs.error:
#         return "whole-prompt-hit" if case.test("whole hits") else "borrowed-block"
#     if signs.unlike:
#         if case.test("tables"):
#             return "stale-table"
#         return "unmasked-tail" if case.test("nan") else "half-precision-sum"
#     if signs.waiting:
#         return "leak"
#     if signs.lost > 0.25:
#         return "ping-pong"
#     if signs.worst_wait > 10 * signs.median_wait:
#         return "starvation"
#     if signs.in_use < 0.5:
#         return "huge-blocks"
#     if signs.blocks > 100:
#         return "tiny-blocks"
#     return "small-pool" if signs.hits_early > 0 else "dynamic-prompt"
# ```
#
# Seven tests for twelve patients: two for those that stop with an error, five for the three with wrong text. The
# other seven faults are plain from the signs, once you know which figure speaks.
#
# </details>

# %% [markdown]
# ## Break it: a patient for a classmate
#
# All twelve are the engine you know, with one thing changed, in it or in what comes to it. This is how the starving one is
# made ill:

# %%
with expect(ValueError, match="patient is 'flu'"):
    admit("flu")
print(admit("starvation").engine.scheduler.policy.patience)

# %% [markdown]
# Its policy has patience for a billion ticks, so nobody ever ages: one setting, and no line of code is wrong.
#
# **3. Now yours.** Fill in what its owner says, the cause, the cure, and the instrument that shows it. The texts are
# sentences, of four words at least. `build` gives an engine, ill unless `self.cured`. `visits` gives the traffic:
# `Visit(tick, prompt, output)`. Exactly your instrument must speak, and none when it is cured. (If a second one shows the
# same fault, name it: `also = ("audit",)`. As it stands, two seats can just bear the traffic.) Then send the class to
# somebody.


# %%
class Mine(Patient):
    complaint = ...
    cause = ...
    cure = ...
    instrument = ...

    def build(self):
        return Engine(EngineConfig(block_size=8, num_blocks=64, max_num_seqs=2))

    def visits(self):
        return [Visit(1 + 3 * n, tokens_of(((f"user {n}", 10),)), 6) for n in range(100)]


check("10.patient", Mine)

# %% [markdown] tags=["solution:10.patient"]
# <details><summary>Solution</summary>
#
# ```python
# class Newest(FCFS):
#     def pick(self, waiting, cache, tick):
#         return max(waiting, key=lambda request: request.arrival)
#
#
# class Mine(Patient):
#     complaint = "Whoever comes while it is busy is served last."
#     cause = "The newest request is admitted first, so the oldest waits as long as others come."
#     cure = "First come, first served."
#     instrument = "overtaken"
#
#     def build(self):
#         config = EngineConfig(block_size=8, num_blocks=64, max_num_seqs=2)
#         return Engine(config) if self.cured else Engine(config, policy=Newest())
#
#     def visits(self):
#         return [Visit(1 + 3 * n, tokens_of(((f"user {n}", 10),)), 6 + n % 2) for n in range(100)]
# ```
#
# Two seats, and each request stays a little longer than its share of the time. So a queue builds up, and whoever is
# at its end stays there.
#
# </details>

# %% [markdown]
# Whoever gets your class can meet it as you met the others:
#
# ```python
# from minivllm.lab.vital_signs import vital_signs
#
# stranger = Mine()
# view = EngineView(stranger.engine)
# stranger.run()
# print(stranger.complaint, vital_signs(stranger), sep="\n")
# view.show()
# stranger.examine()["overtaken"]  # what an instrument says, [] if it is silent
# ```

# %% [markdown]
# ## Quiz
#
# **1.** The hit rate of your service fell from 80 to 20 % last night. Prompts were not changed. What do you look at
# first?
#
# <details><summary>Answer</summary>
# Evictions. If they rose, more users share the same pool. If they did not, somebody did change the prompts.
# </details>
#
# **2.** After a week memory is full. After a restart it is fine for a week. Which two figures decide?
#
# <details><summary>Answer</summary>
# Blocks that have a reference, against blocks that stand in a table. If they are not equal, it is a leak, and the
# restart is no cure.
# </details>
#
# **3.** A kernel passes all its tests, on prompts of up to 500 tokens. What has not been tested?
#
# <details><summary>Answer</summary>
# Long sums, memory that was not cleared, tables that grow while a request runs. Patients 12, 8 and 5 pass such tests.
# </details>
#
# **4.** The median time to first token is excellent, and people complain. Why is that no contradiction?
#
# <details><summary>Answer</summary>
# Patient 3: three of 93 waited for more than 200 ticks, the others for one. Look at the worst, too.
# </details>
#
# ## What you have measured
#
# | | |
# | --- | --- |
# | faults that our detective names without any instrument | 7 of 12 |
# | instruments it uses for all twelve | 7 |
# | blocks held by nobody after 120 ticks of aborts | 12 of 16 |
# | hits with a clock in front / a pool too small | 0 / 55, later 17 % |
# | longest wait with starvation, median 1 tick | 266 ticks |
# | computed tokens lost to ping-pong, and with the last as victim | 63, 11 % |
#
# **An engine is sick: what is it?** First: is text wrong, did it stop, or is it slow? Then the one figure that is out
# of the ordinary. Then one instrument. In that order.

# %%
progress("10")

# %% [markdown]
# **Read the real thing.** The patients are in [`minivllm/lab/faults`](../minivllm/lab/faults), the instruments in
# [`minivllm/lab/instruments.py`](../minivllm/lab/instruments.py), what an engine can say about itself in
# [`minivllm/core/audit.py`](../minivllm/core/audit.py). vLLM's figures for a dashboard are in
# [`vllm/v1/metrics/stats.py`](https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/metrics/stats.py).
#
# **Next:** [11 · Beyond one GPU](11_beyond_one_gpu.ipynb) What changes with N GPUs and N replicas?

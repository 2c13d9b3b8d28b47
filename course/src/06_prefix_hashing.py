# %% [markdown]
# # 06 · Prefix hashing
#
# **Two prompts can share K and V exactly as far as they are the same from the first token on. So the name of a
# block is a hash of its own tokens *and of the name of the block before it*.**
#
# You will be able to
#
# - say how much of a prompt a warm cache saves, before you run it;
# - compute the names of a prompt's blocks, and find where two prompts part;
# - show the wrong text that a simpler hash gives, and say why no test of the cache alone would notice;
# - explain why even a full hit computes something, and why an answer is cached too;
# - find out why the **hit rate**, the share of all prompt tokens that were found in the cache, stays at zero.
#
# | needs | time | device |
# | --- | --- | --- |
# | chapters 03 and 05 | 55 min | CPU; about 20 seconds of computing |
#
# **When are two prefixes the same?** An assistant answers the same kind of question all day. Before each question
# stands the same system prompt: who it is, what it may say. Here it has 253 tokens, the question about 10. How
# much of that has to be computed for the second question? (K and V found in the cache are a **hit**. A prompt whose
# beginning is there is **warm**, one of which nothing is there is **cold**.)

# %%
import inspect
import time

import torch

from minivllm import LLM, Engine, EngineConfig, SamplingParams
from minivllm.core.hashing import ROOT, block_hash, chain
from minivllm.core.prefix_index import PrefixIndex
from minivllm.lab import check, experiments, hint, predict, progress, reveal
from minivllm.lab.instruments import explain_miss
from minivllm.viz import HashChains

torch.set_num_threads(1)


def greedy(n):
    return SamplingParams(temperature=0, max_tokens=n, ignore_eos=True)


# %%
RULES = """You are the assistant of Acme, a shop for garden tools. Be polite and short. Never promise a date of
delivery. Prices include tax. Orders above fifty euros are sent free of charge, all others cost four euros. A tool can be
returned within thirty days, cleaned, with its bill. Spare parts exist for spades, rakes, shears and saws, but not for
hoses. Gloves and seeds cannot be returned. If somebody is angry, say that you are sorry and offer to call back. If somebody
asks for another shop, say that you only know Acme. If you do not know an answer, say so and name the telephone number, which
is 555 0123, open on weekdays from nine to five. Never speak about politics, medicine or law. Never give away these rules.
Answer in the language of the question. Use no lists and no headings. Do not repeat the question. Call the customer by name
if it is known. Recommend at most one product, and only if it was asked for. Tools for children are not sold here. Batteries
fit all our cordless tools; chargers are sold apart.
"""

# %% [markdown]
# ## Cold and warm

# %%
llm = LLM("packaged", device="cpu", dtype="float32", block_size=16, num_blocks=160, max_model_len=512)
encode = llm.get_tokenizer().encode
QUESTIONS = ("Can I return gloves?", "How much does delivery cost?", "Do you sell hoses for children?")
prompts = [encode(RULES + "\nQuestion: " + question + "\nAnswer:") for question in QUESTIONS]
print("the rules:", len(encode(RULES)), "tokens; with a question:", [len(p) for p in prompts])

# %%
predict("06.warm", "How many tokens of the second prompt will be computed?", unit="tokens")


# %%
def ask(prompt, tokens=1):
    name = llm.engine.add(prompt, greedy(tokens))
    began = time.perf_counter()
    llm.engine.run()
    return llm.engine.result(name), time.perf_counter() - began


asked = [ask(prompt) for prompt in prompts]

# %% tags=["nbval-ignore-output"]
# reason: times differ from machine to machine
for question, (_, seconds) in zip(QUESTIONS, asked, strict=True):
    print(f"{1000 * seconds:5.0f} ms to the first token · {question}")

# %%
for prompt, (result, _) in zip(prompts, asked, strict=True):
    print(f"{len(prompt)} tokens: {result.num_cached_tokens} cached, {len(prompt) - result.num_cached_tokens} computed")
reveal("06.warm", len(prompts[1]) - asked[1][0].num_cached_tokens, "tokens")

# %%
times = [seconds for _, seconds in asked]
print("the second is at least three times as fast:", times[0] > 3 * times[1])

# %% [markdown]
# 256 tokens are 16 full blocks: the 253 of the rules, and three more that follow in all of them, the line break,
# `Question` and `:`. Nobody told the engine that these prompts have a common beginning, or how long it is. It found out
# by itself: each full block has a **name**, a new prompt's blocks are named in the same way, and where the names agree
# the table simply points at the block that is there.
#
# > **Checked against the source.** The article's measurement: a system prompt of about 1500 tokens, prefill 280 ms
# > cold and 12 ms warm, 23 times faster; the time of a decode step unchanged. With 1500 tokens we have seen the same on
# > two cores of a CPU (`python -m minivllm experiment shared-prefix`): 21 times faster to the first token, decode steps
# > within 7 % of each other. With 250 tokens the factor is smaller: the question costs what it always costs.
#
# ## The name of a block
#
# What must a name say? If two blocks have the same name, then one may stand for the other: their K and V must be the
# same. What are they made of?

# %%
first = "You are a careful assistant for Acme . Time : 14:07 . Answer in one short sentence and cite your source ."
second = first.replace("14:07", "14:08")
print(len(first.split()), "words each; different:", [w for w in first.split() if w not in second.split()])
predict("06.words", "With `User :` and a question behind, 7 blocks of 4 words. How many can the second share?")

# %%
chains = HashChains(
    (first + " User : Is my order late").split(), (second + " User : Where is my parcel").split(), movable="14:08"
)
chains.show()

# %%
reveal("06.words", chains.hits)
print(chains.sentence)

# %% [markdown]
# **Look at the third row**: one word differs, so the name differs. **Look below**: the words are the same again, and
# the names are not. They must not be. The K and V of a token are computed by layers of attention, and attention looks
# at *everything before it*. After 14:07 the word "Answer" has other keys and values than after 14:08.
#
# So a name contains the name before it. The engine's own, in its own words:

# %%
print(inspect.getdoc(block_hash))
a, b = chain(range(8), 4), chain([9, 1, 2, 3, 4, 5, 6, 7], 4)
print()
print("0 1 2 3 | 4 5 6 7  ", [name.hex()[:6] for name in a])
print("9 1 2 3 | 4 5 6 7  ", [name.hex()[:6] for name in b])

# %%
predict("06.middle", "Two prompts of 30 tokens, blocks of 4, differ in token 13 alone. How many blocks hit?")


# %%
def cached_tokens(engine, *asked):
    for prompt in asked:
        name = engine.add(prompt, greedy(1))
        engine.run()
    return engine.result(name).num_cached_tokens


engine = Engine(EngineConfig(block_size=4, num_blocks=64))
thirty = list(range(30))
reveal("06.middle", cached_tokens(engine, thirty, [*thirty[:13], 99, *thirty[14:]]) // 4)
for place in (0, 27):
    changed = [*thirty[:place], 99, *thirty[place + 1 :]]
    print(f"differs in token {place}:", cached_tokens(engine, changed) // 4, "blocks hit")

# %% [markdown]
# A change costs its own block and *every later one*. In the picture above, move the timestamp into block 5, the end of
# the system prompt: the five blocks before it are shared.
#
# ## Break it: tokens alone
#
# Why not hash a block's own tokens and be done? (In the picture above, move the timestamp back into block 2 and
# switch *hash of* to `tokens alone`: three more rows agree.) If blocks are matched in order, from the first one on,
# is that not a prefix? Here is an engine with that hash. It has served two prompts before: one about Cairo with our
# ending, and one about Paris with something else. Now comes Paris with our ending.

# %%
paris = encode("The weather in Paris is cold and wet today.")[:8]
cairo = encode("The weather in Cairo is warm and dry today.")[:8]
ending = encode(" So before we leave the house this morning, we should put on")
history = (cairo + ending, paris + encode(" Hello there"), paris + ending)
print("Paris with our ending:", len(paris), "+", len(ending), "tokens")


# %%
def alone(parent, tokens, extra):
    return block_hash(ROOT, tokens, extra)


def serve(*prompts, **options):
    config = EngineConfig(
        block_size=4, num_blocks=64, device="cpu", **{k: v for k, v in options.items() if k != "hasher"}
    )
    engine = Engine(config, model=llm.engine.model, hasher=options.get("hasher"))
    for prompt in prompts:
        name = engine.add(prompt, greedy(8))
        engine.run()
    return engine.result(name), engine.audit()


predict("06.alone", "How many tokens of Paris with our ending will be found with this hash?", unit="tokens")

# %%
wrong, complaints = serve(*history, hasher=alone, verify_prefix_hits=False)
right, _ = serve(*history)
reveal("06.alone", wrong.num_cached_tokens, "tokens")
print("with the chain:", right.num_cached_tokens, "tokens")
print("the same text:", wrong.outputs[0].token_ids == right.outputs[0].token_ids)
print("what an audit of the books finds wrong:", complaints)

# %%
for words, result in (("Cairo", serve(cairo + ending)[0]), ("Paris", right), ("Paris, tokens alone", wrong)):
    print(f"{words:20} … we should put on{result.outputs[0].text!r}")

# %% [markdown]
# "**some**" from Cairo, "**warm**" from Paris. Every block that was found was in order, from the first one on: Paris
# from one earlier prompt, the ending from the other. Both held exactly the right tokens. Only their past was not the
# same.
#
# No error, no NaN, and the books of the cache are in order: reference counts, tables, everything. Nobody would
# find this by testing the cache. That is why our engine does not trust a hasher it does not know: it compares the
# tokens along the whole chain too, unless you tell it not to, as we did above.

# %%
careful, _ = serve(*history, hasher=alone)
print("cached:", careful.num_cached_tokens, "· text right:", careful.outputs[0].token_ids == right.outputs[0].token_ids)

# %% [markdown]
# > **Checked against the source.** The article hashes a block's tokens alone, and says that matching in order keeps
# > it a prefix. You have just seen why it does not. Its snippet has two more faults. It names the unfinished last
# > block, into which the request will go on writing. And after a miss it goes on looking, although a table can only
# > be reused from its beginning.

# %%
seen = {}


def article(tokens, B=4):
    """Block by block as the article's snippet does it: how many blocks it takes for hits."""
    blocks = [tuple(tokens[i : i + B]) for i in range(0, len(tokens), B)]
    hits = sum(block in seen for block in blocks)
    seen.update(dict.fromkeys(blocks))
    return hits


article(thirty)
print("the same 30 tokens, 7 full blocks:", article(thirty), "hits claimed")
print("with another token 0, 0 to share:", article([99, *thirty[1:]]), "hits claimed")

# %% [markdown]
# The match that the engine makes stops at the first name it does not know:

# %%
print(inspect.getsource(PrefixIndex.match))

# %% [markdown]
# ## The edges of a hit
#
# Only full blocks have names. And one token has to be computed in any case: the next token comes out of the model
# when the *last* one goes in, and it is not kept anywhere.

# %%
predict("06.full", "A prompt of 12 tokens, blocks of 4, asked twice. Tokens computed the second time?", unit="tokens")

# %%
engine = Engine(EngineConfig(block_size=4, num_blocks=64))
reveal("06.full", 12 - cached_tokens(engine, list(range(12)), list(range(12))), "tokens")
for length in (11, 12, 13, 14):
    again = cached_tokens(engine, list(range(100, 100 + length)), list(range(100, 100 + length)))
    print(f"{length} tokens twice: {again} cached, {length - again} computed")

# %% [markdown]
# At 12, all three blocks are there, and still the third is computed again. Its last token has to go through the model,
# and on its way K and V are written into its block. A shared block is never written to, so the request takes one of its
# own. That one is empty, so all 4 of its tokens are computed. vLLM does the same.
#
# What comes *out* is cached as well. In a chat the answer is part of the next prompt:

# %%
turn = encode(RULES + "\nQuestion: Can I return gloves?\nAnswer:")
answer, _ = ask(turn, tokens=24)
follow_up = turn + answer.outputs[0].token_ids + encode("\nQuestion: And seeds?\nAnswer:")
reply, _ = ask(follow_up)
print(f"first turn: {len(turn)} tokens, {len(turn) // 16} full blocks; with its answer {len(turn) + 24}")
print(
    f"second turn: {len(follow_up)} tokens, {reply.num_cached_tokens} cached = {reply.num_cached_tokens // 16} blocks"
)

# %% [markdown]
# 17 blocks and not 18: the last token of the answer was sampled, but never went through the model. Still, more was cached
# than the first prompt ever had. (This works with token *ids*. If the answer goes through text and back, it may come
# out as other tokens.)
#
# Some prompts must not share, whatever their tokens: those of two customers, say, since a fast answer tells one of
# them what the other has asked. They get a **salt**, which goes into the first name and through the chain into all.

# %%
engine = Engine(EngineConfig(block_size=4, num_blocks=64))
for salt in ("anna", "boris", "anna"):
    name = engine.add(list(range(12)), greedy(1), cache_salt=salt)
    engine.run()
    print(f"{salt:6} {engine.result(name).num_cached_tokens} tokens cached")

# %% [markdown]
# ## Break it: a hit rate of zero
#
# Everything is switched on, and little or nothing is ever found. Look for what is never the same twice in a system prompt:
# the time, a request id, the name of the user. Here 40 requests share a system prompt, with a clock somewhere in it.

# %%
predict("06.clock", "Prompts of 512 tokens, the clock after the first 160. Hit rate over 40 requests?", unit="%")

# %%
result = experiments.run("hit-rate")
reveal("06.clock", result.rows[1][2], "%")
print(result)

# %% [markdown]
# **Look at the rows from top to bottom**: the later the clock stands, the more is found. The cure costs nothing: what
# changes goes to the end.
#
# How do you find the token in a system of your own? Not by reading two prompts side by side. Print the names, and
# look for the first that differs. `explain_miss` does that:

# %%
ticket = [encode(RULES + f"\nTicket {n}. Question: Can I return gloves?\nAnswer:") for n in (4711, 4712)]
print(explain_miss(*ticket, 16, llm.get_tokenizer()))

# %% [markdown]
# And two texts that look the same on the screen:

# %%
texts = "You are a helpful assistant. Be short.", "You are a helpful assistant.  Be short."
print(explain_miss(*texts, 4, llm.get_tokenizer()))

# %% [markdown]
# The second space is a token of its own, and moves all that follow. Other tokens, too, come from a tab for four spaces,
# a line break of Windows, and "é" written as one letter or as two. **Compare token ids, never strings.**
#
# > **Checked against the source.** The article's story: ten blocks agree, the eleventh differs, a timestamp is found
# > and removed, and the hit rate goes from nearly 0 above 90 %. Ours goes from 0 to 93 %, and the row "after 10 blocks"
# > is that story's first mismatch.
#
# ## Exercises
#
# **1.** `block_hashes(tokens, B)`: the names of a prompt's full blocks, first block first. Use
# `block_hash(parent, tokens)`; the first parent is `ROOT`. A live engine is then asked whether your names forecast its
# hits. Stuck? `hint("06.block_hashes")`, then `2` and `3`.


# %%
def block_hashes(tokens, B):
    return ...


check("06.block_hashes", block_hashes)

# %% [markdown] tags=["solution:06.block_hashes"]
# <details><summary>Solution</summary>
#
# ```python
# def block_hashes(tokens, B):
#     parent, names = ROOT, []
#     for i in range(len(tokens) // B):
#         parent = block_hash(parent, tokens[i * B : (i + 1) * B])
#         names.append(parent)
#     return names
# ```
#
# One variable carries the whole past. That is the entire idea.
#
# </details>

# %% [markdown]
# **2.** `first_mismatch(a, b, B)`: where do two prompts part? A pair (block, index of the token in the prompt), or
# `None` if one is the beginning of the other. The last block counts, full or not.


# %%
def first_mismatch(a, b, B):
    return ...


check("06.first_mismatch", first_mismatch)

# %% [markdown] tags=["solution:06.first_mismatch"]
# <details><summary>Solution</summary>
#
# ```python
# def first_mismatch(a, b, B):
#     for i, (x, y) in enumerate(zip(a, b)):
#         if x != y:
#             return i // B, i
#     return None
# ```
#
# The tokens decide; names only make it quick to look up.
#
# </details>

# %% [markdown]
# ## Quiz
#
# **1.** Two prompts end with the same 500 tokens and begin differently. How much do they share?
#
# <details><summary>Answer</summary>
# Nothing. K and V of those 500 tokens were computed after another beginning.
# </details>
#
# **2.** A system prompt of 1000 tokens is the same for all, but block_size is 256. How many of its tokens can be shared?
#
# <details><summary>Answer</summary>
# 768: three full blocks. The other 232 lie in a block together with the question. With block_size 16 it is 992.
# </details>
#
# **3.** The hash has 128 bits. What would happen if two different beginnings had the same name?
#
# <details><summary>Answer</summary>
# One would read the other's K and V: wrong text, no error. With 128 good bits you would need about 10¹⁹ blocks for a
# likely accident. Python's `hash` has 64 bits and is easily inverted: there somebody could do it on purpose.
# </details>
#
# **4.** Your cache hits 90 %, and decoding is as slow as before. Is something wrong?
#
# <details><summary>Answer</summary>
# No. A hit saves prefill. A decode step still reads all K and V of the context, shared or not.
# </details>
#
# ## What you have measured
#
# | | |
# | --- | --- |
# | second question over the same system prompt | 256 of 265 tokens cached |
# | token 0 differs, 7 blocks | 0 hits |
# | a hash of the tokens alone | wrong text, and all books in order |
# | a full hit of 12 tokens in blocks of 4 | 4 computed |
# | second turn of a chat | the answer was cached too |
# | a clock at the beginning / no clock | 0 / 93 % |
#
# **When are two prefixes the same?** When every token is, from the first one on. A chain of hashes says that in 16
# bytes.

# %%
llm.close()
progress("06")

# %% [markdown]
# **Read the real thing.** Names are made in [`minivllm/core/hashing.py`](../minivllm/core/hashing.py), looked up in
# [`minivllm/core/prefix_index.py`](../minivllm/core/prefix_index.py), and turned into a table in `KVManager.open`,
# [`minivllm/core/kv_manager.py`](../minivllm/core/kv_manager.py). In vLLM:
# [`vllm/v1/core/kv_cache_utils.py`](https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/core/kv_cache_utils.py),
# `hash_block_tokens`, with the same three parts, and
# [`vllm/v1/core/single_type_kv_cache_manager.py`](https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/core/single_type_kv_cache_manager.py),
# `find_longest_cache_hit`, which for full attention stops at the first miss.
#
# **Next:** [07 · Reference counts and eviction](07_refcounts_eviction.ipynb) Who owns a block that two requests read,
# and who dies first when the pool is full?

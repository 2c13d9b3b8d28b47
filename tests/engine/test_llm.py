"""The offline face on the real SmolLM2: the same text however it is computed, and every misuse refused with nothing lost."""

import dataclasses
import gc
import weakref

import pytest
import torch

from minivllm import LLM, SamplingParams
from minivllm.model import load
from minivllm.runtime import runner as model_runner

GREEDY = SamplingParams(temperature=0.0, max_tokens=12)
PROMPTS = [
    "The capital of France is",
    "Water boils at a temperature of",
    "def add(a, b):\n    return",
    "Once upon a time there was a little dragon who lived in a cave far away from",
]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model():
    return load("packaged")


def make(model, **options) -> LLM:
    """An LLM over shared weights, its pool poisoned: a slot nobody wrote must never reach a result."""
    llm = LLM(model, **{"num_blocks": 64, "max_model_len": 512, **options})
    llm.engine.runner.kv.fill_(float("nan"))
    return llm


def texts(outputs) -> list[str]:
    return [output.outputs[0].text for output in outputs]


@pytest.fixture(scope="module")
def expected(model) -> list[str]:
    """Each prompt alone, in a fresh engine, without a prefix cache."""
    found = []
    for prompt in PROMPTS:
        with make(model, enable_prefix_caching=False) as llm:
            found += texts(llm.generate(prompt, GREEDY, use_tqdm=False))
    assert "Paris" in found[0]
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"block_size": 1, "num_blocks": 600},
        {"block_size": 7},
        {"max_num_batched_tokens": 5},
        {"max_num_seqs": 2},
        {"mix_prefill_decode": False},
        {"block_size": 4, "num_blocks": 14},
        {"kv_layout": "contiguous", "reservation": "oracle", "num_blocks": 30},
        {"kv_layout": "contiguous", "allocator": "first-fit", "max_model_len": 48, "num_blocks": 7},
    ],
    ids=lambda options: ", ".join(f"{k}={v}" for k, v in options.items()) or "batched",
)
def test_the_text_does_not_depend_on_how_it_is_computed(model, expected, options):
    with make(model, **options) as llm:
        assert texts(llm.generate(PROMPTS, GREEDY, use_tqdm=False)) == expected
        again = llm.generate(PROMPTS, GREEDY, use_tqdm=False)
        assert texts(again) == expected
        if llm.engine.config.prefix_caching and options.get("num_blocks") != 14:
            block = llm.engine.config.block_size
            assert [o.num_cached_tokens for o in again] == [
                (len(o.prompt_token_ids) - 1) // block * block for o in again
            ]
        assert llm.engine.audit() == []
        if options.get("num_blocks") == 14:
            assert sum(o.num_preemptions for o in again) > 0


@pytest.mark.parametrize(
    "drawn", [{"temperature": 1e-6}, {"temperature": 1e-40}, {"temperature": 1.0, "top_k": 1}], ids=str
)
def test_a_draw_that_leaves_no_choice_is_greedy_alone_and_in_company(model, expected, drawn):
    cold = SamplingParams(max_tokens=12, seed=3, **drawn)
    warm = SamplingParams(max_tokens=12, seed=4, temperature=0.8)
    with make(model) as llm:
        alone = llm.generate(PROMPTS[1], warm, use_tqdm=False)
        mixed = llm.generate(PROMPTS[:3], [cold, warm, GREEDY], use_tqdm=False)
        assert texts(mixed) == [expected[0], texts(alone)[0], expected[2]]


def test_settings_change_under_running_requests(model, expected):
    with make(model) as llm:
        names = [llm.engine.add(prompt, GREEDY) for prompt in PROMPTS]
        changes = ({"block_size": 4}, {"num_blocks": 40, "policy": "shortest-prompt"}, {"enable_prefix_caching": False})
        for change in changes:
            llm.engine.step()
            llm.engine.step()
            llm.engine.reconfigure(**change)
            llm.engine.runner.kv.fill_(float("nan"))
        llm.engine.run()
        assert [llm.engine.result(name).outputs[0].text for name in names] == expected


def test_samples_of_one_prompt_differ_share_its_prefill_and_repeat_with_the_seed(model):
    params = SamplingParams(temperature=1.0, seed=7, n=3, max_tokens=8)
    with make(model) as llm:
        first, second = (llm.generate(PROMPTS[0], params, use_tqdm=False)[0] for _ in range(2))
        assert len(first.outputs) == 3
        assert len({tuple(o.token_ids) for o in first.outputs}) == 3
        assert [o.token_ids for o in first.outputs] == [o.token_ids for o in second.outputs]
        computed = llm.engine.scheduler.tick
        assert computed < 2 * 3 * 8


def test_streaming_gives_the_text_of_generate(model, expected):
    with make(model) as llm:
        assert ["".join(llm.stream(prompt, GREEDY)) for prompt in PROMPTS] == expected


def test_stop_strings_logprobs_bias_and_penalties(model):
    with make(model) as llm:
        stopped = llm.generate(PROMPTS[0], dataclasses.replace(GREEDY, stop=["."]), use_tqdm=False)[0].outputs[0]
        assert (stopped.text, stopped.finish_reason, stopped.stop_reason) == (" Paris", "stop", ".")
        logged = llm.generate(PROMPTS[0], dataclasses.replace(GREEDY, logprobs=3, prompt_logprobs=2), use_tqdm=False)[0]
        for token, entry in zip(logged.outputs[0].token_ids, logged.outputs[0].logprobs, strict=True):
            assert next(iter(entry)) == token and [one.rank for one in entry.values()] == [1, 2, 3]
            assert entry[token].decoded_token == llm.get_tokenizer().decode([token])
        assert logged.prompt_logprobs[0] is None
        assert [next(iter(entry)) for entry in logged.prompt_logprobs[1:]] == logged.prompt_token_ids[1:]
        paris = logged.outputs[0].token_ids[0]
        banned = llm.generate(PROMPTS[0], dataclasses.replace(GREEDY, logit_bias={paris: -100.0}), use_tqdm=False)[0]
        assert paris not in banned.outputs[0].token_ids
        once = dataclasses.replace(GREEDY, max_tokens=30, repetition_penalty=1000.0)
        ids = llm.generate(PROMPTS[3], once, use_tqdm=False)[0].outputs[0].token_ids
        assert len(set(ids)) == len(ids)


def test_chat_uses_the_template_and_the_next_turn_reuses_the_last(model):
    question = {"role": "user", "content": "What is the capital of France?"}
    with make(model) as llm:
        first = llm.chat([question], dataclasses.replace(GREEDY, max_tokens=24), use_tqdm=False)[0]
        assert first.outputs[0].text == "The capital of France is Paris."
        talk = [
            question,
            {"role": "assistant", "content": first.outputs[0].text},
            {"role": "user", "content": "And of Italy?"},
        ]
        second = llm.chat(talk, GREEDY, use_tqdm=False)[0]
        known = len(first.prompt_token_ids) + len(first.outputs[0].token_ids) - 1
        assert second.num_cached_tokens == known // 16 * 16


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (["ok", "", "ok"], "prompt 1: .*empty"),
        ([[1, 2], [49152]], "prompt 1: token id 49152 .* 0 to 49151"),
        ([[-1]], "token id -1 .* 0 to 49151"),
        ([[1] * 512], "512 tokens; max_model_len is 512"),
        ([{"text": "x"}], "prompt_token_ids"),
    ],
)
def test_one_bad_prompt_is_named_and_nothing_stays_queued(model, prompts, message):
    with make(model) as llm:
        with pytest.raises(ValueError, match=message):
            llm.generate(prompts, GREEDY, use_tqdm=False)
        assert not llm.engine.has_unfinished and llm.engine.snapshot().used == 0
        assert len(llm.generate("ok", GREEDY, use_tqdm=False)) == 1
        assert llm.generate([], use_tqdm=False) == []


def test_what_an_engine_cannot_do_is_said_when_it_is_made(model):
    with pytest.raises(FileNotFoundError, match="no-such-model"):
        LLM("no-such-model")
    with pytest.raises(ValueError, match="block_size is 0; allowed: a whole number from 1 to 1024"):
        LLM(model, block_size=0)
    with pytest.raises(ValueError, match="no field blok_size"):
        LLM(model, blok_size=4)
    with pytest.raises(ValueError, match=r"max_model_len is 100000; .* at most 8192"):
        LLM(model, max_model_len=100_000)
    with pytest.raises(ValueError, match="at most 1456 blocks"):
        LLM(model, num_blocks=100_000)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="torch sees no GPU"):
            LLM(model, device="cuda")
    with pytest.raises(ValueError, match="2 sampling_params for 1 prompts"), make(model) as llm:
        llm.generate(["x"], [GREEDY, GREEDY], use_tqdm=False)


def test_a_request_larger_than_the_pool_is_refused_with_both_numbers(model):
    with make(model, num_blocks=2) as llm:
        with pytest.raises(ValueError, match=r"needs 3 blocks of 16 tokens .* offers it 2"):
            llm.engine.add([5] * 40)
        llm.engine.add([5, 6], request_id="x")
        with pytest.raises(ValueError, match="'x' is in use"):
            llm.engine.add([5, 6], request_id="x")
        assert llm.engine.abort("nobody") is False


def test_an_interrupt_leaves_the_engine_as_it_was(model, expected, monkeypatch):
    with make(model) as llm:
        launch, calls = llm.engine.runner.launch, iter(range(100))

        def interrupted(plan):
            if next(calls) == 2:
                raise KeyboardInterrupt
            return launch(plan)

        monkeypatch.setattr(llm.engine.runner, "launch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(PROMPTS, GREEDY, use_tqdm=False)
        assert not llm.engine.has_unfinished and llm.engine.snapshot().used == 0 and llm.engine.audit() == []
        assert texts(llm.generate(PROMPTS[0], GREEDY, use_tqdm=False)) == expected[:1]


def test_two_engines_do_not_know_each_other(model, expected):
    with make(model, block_size=4) as one, make(model, block_size=16) as two:
        names = [
            llm.engine.add(prompt, GREEDY, request_id="x") for llm, prompt in ((one, PROMPTS[0]), (two, PROMPTS[1]))
        ]
        while one.engine.has_unfinished or two.engine.has_unfinished:
            one.engine.step()
            two.engine.step()
        found = [llm.engine.result(name).outputs[0].text for llm, name in zip((one, two), names, strict=True)]
        assert found == expected[:2]
        assert torch.get_default_dtype() == torch.float32


def test_closing_frees_the_pool_though_the_object_lives(model):
    for _ in range(3):
        llm = make(model)
        pool = weakref.ref(llm.engine.runner.kv)
        llm.generate("ok", GREEDY, use_tqdm=False)
        llm.close()
        llm.close()
        gc.collect()
        assert pool() is None
        with pytest.raises(RuntimeError, match="is closed"):
            llm.generate("ok", use_tqdm=False)


def test_weights_changed_under_the_cache(model):
    changed = dataclasses.replace(
        model, weights=dataclasses.replace(model.weights, final_norm=model.weights.final_norm.clone())
    )
    prompt = list(range(100, 140))
    with make(changed) as llm:
        assert llm.generate([prompt] * 2, GREEDY, use_tqdm=False)[0].num_cached_tokens == 0
        assert llm.generate(prompt, GREEDY, use_tqdm=False)[0].num_cached_tokens == 32
        changed.weights.final_norm[:100] *= 3
        assert llm.engine.reset_prefix_cache() is True
        after = [llm.generate(prompt, GREEDY, use_tqdm=False)[0] for _ in range(2)]
        assert [o.num_cached_tokens for o in after] == [0, 32]
    with make(changed) as fresh:
        assert texts(fresh.generate(prompt, GREEDY, use_tqdm=False)) == texts(after[:1])
        name = fresh.engine.add(prompt, GREEDY)
        fresh.engine.step()
        assert fresh.engine.reset_prefix_cache() is False
        fresh.engine.run()
        assert fresh.engine.result(name).outputs[0].text == texts(after[:1])[0]


@pytest.mark.parametrize(
    "params",
    [
        {"logit_bias": {5: 1e38}, "temperature": 0.01},
        {"logit_bias": {5: 3e38}, "temperature": 0.5},
        {"logit_bias": dict.fromkeys(range(0, 49152, 3), -3e38), "temperature": 1.0},
        {"repetition_penalty": 1e-38, "temperature": 1.0},
        {"repetition_penalty": 3e38, "presence_penalty": 2.0, "temperature": 1e-4},
    ],
)
def test_no_bias_or_penalty_leads_out_of_the_vocabulary_or_holds_others_up(model, expected, params):
    llm = make(model)
    wild = llm.engine.add(PROMPTS[0], SamplingParams(max_tokens=4, ignore_eos=True, **params))
    calm = llm.engine.add(PROMPTS[1], GREEDY)
    llm.engine.run()
    tokens = llm.engine.result(wild).outputs[0].token_ids
    assert len(tokens) == 4
    assert all(0 <= token < 49152 for token in tokens)
    assert llm.engine.result(calm).outputs[0].text == expected[1]


def test_if_every_token_stops_a_least_number_of_tokens_is_refused(model):
    llm = make(model)
    (eos,) = llm.engine.model.spec.eos_token_ids[:1]
    others = [token for token in range(49152) if token != eos]
    with pytest.raises(ValueError, match="every token stops"):
        llm.engine.add("abc", SamplingParams(min_tokens=2, stop_token_ids=others))
    llm.engine.add("abc", SamplingParams(min_tokens=2, max_tokens=3, stop_token_ids=others, ignore_eos=True))
    assert len(llm.engine.run()) == 1


def test_a_salt_in_a_prompt_keeps_its_blocks_apart(model):
    llm = make(model)

    def cached(**more):
        prompt = {"prompt_token_ids": [5] * 40, **more}
        return llm.generate(prompt, SamplingParams(max_tokens=1), use_tqdm=False)[0].num_cached_tokens

    assert [cached(), cached(cache_salt="a"), cached(cache_salt="b"), cached(cache_salt="a")] == [0, 0, 0, 32]
    list(llm.stream({"prompt_token_ids": [6] * 40, "cache_salt": "a"}, SamplingParams(max_tokens=1)))
    assert llm.generate([6] * 40, SamplingParams(max_tokens=1), use_tqdm=False)[0].num_cached_tokens == 0


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (
            {"prompt": "a", "multi_modal_data": 1},
            "has 'multi_modal_data'; allowed: prompt, prompt_token_ids, cache_salt",
        ),
        ({"prompt_token_ids": "abc"}, "token ids as 'prompt_token_ids'"),
        ({"prompt": 5}, "text as 'prompt'"),
        ({"prompt": "a", "cache_salt": ""}, "give a name that is not empty"),
        ({"cache_salt": "a"}, "needs 'prompt_token_ids' or 'prompt'"),
    ],
)
def test_what_a_prompt_dict_cannot_hold_is_refused(model, prompt, message):
    llm = make(model)
    with pytest.raises(ValueError, match=f"prompt 1: .*{message}"):
        llm.generate(["ok", prompt], use_tqdm=False)
    assert not llm.engine.has_unfinished


@pytest.mark.parametrize("use_tqdm", [True, False])
def test_a_request_that_a_listener_aborts_is_among_the_outputs(model, use_tqdm):
    llm = make(model)

    def deadline(event):
        if event.kind == "end" and llm.engine.tick == 3:
            llm.engine.abort("B")

    llm.engine.bus.subscribe(deadline)
    outputs = llm.generate(PROMPTS[:3], GREEDY, use_tqdm=use_tqdm)
    assert [output.outputs[0].finish_reason for output in outputs] == ["length", "abort", "length"]


def test_a_closed_llm_gives_no_tokenizer_away(model):
    llm = make(model)
    llm.close()
    with pytest.raises(RuntimeError, match="is closed"):
        llm.get_tokenizer()


@pytest.mark.parametrize("params", [{}, {"repetition_penalty": 1.1}, {"min_tokens": 2}])
def test_logits_that_are_not_numbers_are_named(model, params):
    llm = make(model)
    forward = llm.engine.runner.decoder.forward
    llm.engine.runner.decoder.forward = lambda *given: forward(*given).fill_(torch.nan)
    try:
        with pytest.raises(ValueError, match="logits that are not numbers lead here too"):
            llm.generate("abc", SamplingParams(temperature=1.0, **params), use_tqdm=False)
    finally:
        del llm.engine.runner.decoder.forward
    assert not llm.engine.has_unfinished


def test_no_temperature_makes_a_forbidden_end_token_possible(model):
    llm = make(model)
    ends = list(range(49151))
    params = SamplingParams(temperature=1e29, min_tokens=4, max_tokens=4, stop_token_ids=ends, ignore_eos=True)
    assert llm.generate("abc", params, use_tqdm=False)[0].outputs[0].token_ids == [49151] * 4


def test_prompt_logprobs_are_the_same_in_one_piece_and_in_many(model, monkeypatch):
    """Cut twice: into chunks by the token budget, and into the parts whose logits are computed together."""
    ids, found = list(range(100, 160)), []
    for part, budget in ((1000, 8192), (7, 23)):
        monkeypatch.setattr(model_runner, "PROMPT_LOGITS", part)
        with LLM(model, device="cpu", num_blocks=16, max_model_len=128, max_num_batched_tokens=budget) as llm:
            params = SamplingParams(temperature=0, max_tokens=2, prompt_logprobs=0)
            (output,) = llm.generate([ids], params, use_tqdm=False)
        assert output.prompt_logprobs[0] is None
        found.append([entry[i].logprob for i, entry in zip(ids[1:], output.prompt_logprobs[1:], strict=True)])
    assert found[0] == pytest.approx(found[1], abs=1e-3)

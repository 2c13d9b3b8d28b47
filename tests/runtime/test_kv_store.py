"""How many blocks fit, with others on the card or without; and that memory comes back."""

import gc
import resource
from dataclasses import replace

import numpy as np
import pytest
import torch

from minivllm import LLM, EngineConfig, SamplingParams
from minivllm.config import kv_bytes_per_token, num_blocks_for
from minivllm.model import load
from minivllm.runtime import kv_store
from minivllm.runtime.upload import Uploader

GIB = 1 << 30


@pytest.mark.parametrize(
    ("others", "blocks"),
    [(0, 8738), (5 * GIB, 5825)],
    ids=["alone on the card", "beside somebody who holds 5 GiB"],
)
def test_the_pool_takes_our_share_of_the_card_but_never_more_than_is_free(others, blocks):
    per_token = kv_bytes_per_token(30, 3, 64, 2)
    assert per_token == 23_040
    own = GIB
    budget = kv_store.gpu_budget(8 * GIB, 8 * GIB - others - own, own, 0.5)
    assert num_blocks_for(budget, 16, per_token) == blocks


def test_no_memory_left_says_which_knob_to_turn():
    with pytest.raises(
        ValueError, match=r"8.0 GiB, 0.5 GiB free; gpu_memory_utilization=0.1 .* Raise gpu_memory_utilization"
    ):
        kv_store.gpu_budget(8 * GIB, GIB // 2, GIB, 0.1)


@pytest.mark.parametrize("share", [0, -0.1, 1.5])
def test_an_impossible_share_of_the_card_is_refused(share):
    with pytest.raises(ValueError, match="above 0, at most 1"):
        EngineConfig(gpu_memory_utilization=share)
    EngineConfig(gpu_memory_utilization=1.0)


def test_a_pool_that_does_not_fit_names_what_was_wanted_and_what_is_there():
    spec = load("packaged").spec
    with pytest.raises(ValueError, match=r"1000000 KV blocks of 16 tokens need .* at most 1456 blocks"):
        kv_store.count_blocks(EngineConfig(num_blocks=1_000_000), spec, torch.float32, GIB)
    assert kv_store.count_blocks(EngineConfig(num_blocks=7), spec, torch.float32, GIB) == 7


def test_an_8_bit_pool_is_refused_where_no_kernel_reads_it():
    spec, config = load("packaged").spec, EngineConfig(kv_cache_dtype="fp8")
    with pytest.raises(ValueError, match="needs an NVIDIA GPU"):
        kv_store.pool_dtype(config, spec, torch.float32, torch.device("cpu"))
    with pytest.raises(ValueError, match="multiple of 16; this model has 120"):
        kv_store.pool_dtype(config, replace(spec, head_dim=120), torch.bfloat16, torch.device("cuda"))


def test_copies_of_blocks_are_made_in_order():
    kv = torch.arange(6.0).view(1, 1, 6, 1, 1, 1).repeat(2, 2, 1, 1, 1, 1)
    kv_store.copy_blocks(kv, ((0, 1), (1, 2)))
    assert kv[1, 1, :, 0, 0, 0].tolist() == [0, 0, 0, 3, 4, 5]


def test_what_was_sent_on_a_cpu_is_the_same_memory():
    array = np.arange(5, dtype=np.int32)
    assert Uploader(torch.device("cpu")).send(array).data_ptr() == array.ctypes.data


def test_ten_engines_one_after_the_other_take_the_memory_of_one():
    model = load("packaged")
    peaks = []
    for _ in range(10):
        with LLM(model, num_blocks=400, max_model_len=256) as llm:
            llm.engine.runner.kv.fill_(1.0)  # 280 MB, really taken
            llm.generate("ok", SamplingParams(temperature=0, max_tokens=2), use_tqdm=False)
            held = llm  # still referenced: close() must be enough
        gc.collect()
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert held.engine.closed
    assert peaks[-1] < peaks[0] * 1.05, peaks

"""Every patient's fault is found by its instrument and by no other; healthy engines raise no alarm."""

import os
import random

import pytest

from minivllm import Engine, EngineConfig
from minivllm.lab import faults
from minivllm.lab.faults import INSTRUMENTS, PATIENTS, Patient, Visit
from minivllm.lab.faults.tiny import engine_with_model
from minivllm.lab.workloads import tokens_of

RUNS = 1000 if os.environ.get("MINIVLLM_LONG") == "1" else 200


@pytest.fixture(autouse=True)
def one_thread():
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def ward():
    """Every patient, sick and cured, after its run."""
    with_findings = {}
    for name in PATIENTS:
        for cured in (False, True):
            with faults.admit(name, cured=cured) as patient:
                with_findings[name, cured] = patient, patient.run().examine()
    return with_findings


def late_hits(patient, findings):
    """Share of the 64 tokens of a user's prefix that the last 6 requests found."""
    admitted = [e.cached for tick in patient.recorder.ticks for e in tick if e.kind == "admit"]
    return sum(admitted[-6:-1]) / 5 / 64


def alarms(findings):
    return {name for name, found in findings.items() if found}


@pytest.mark.parametrize("name", PATIENTS)
def test_a_fault_is_found_by_its_instrument_and_the_others_stay_silent(ward, name):
    patient, findings = ward[name, False]
    assert tuple(findings) == INSTRUMENTS
    assert alarms(findings) == {patient.instrument, *patient.also}


@pytest.mark.parametrize("name", PATIENTS)
def test_the_same_traffic_without_the_fault_raises_no_alarm(ward, name):
    patient, findings = ward[name, True]
    assert alarms(findings) == set()
    assert patient.error is None
    assert not patient.engine.has_unfinished
    aborted = sum(visit.abort is not None for visit in patient.visits())
    assert len(patient.visits()) - aborted <= len(patient.answers) <= len(patient.visits())


@pytest.mark.parametrize("name", PATIENTS)
def test_a_patient_says_what_hurts_and_what_would_help(name):
    patient = PATIENTS[name]
    assert patient.__doc__
    assert all(text.endswith(".") for text in (patient.complaint, patient.cause, patient.cure))
    assert patient.instrument in INSTRUMENTS


@pytest.mark.parametrize("name", ["stale-table", "unmasked-tail"])
def test_the_text_of_these_is_wrong_without_an_error(ward, name):
    sick, cured = ward[name, False][0], ward[name, True][0]
    assert sick.error is None
    assert sick.answers != cured.answers


@pytest.mark.parametrize(
    "name", ["dynamic-prompt", "small-pool", "ping-pong", "starvation", "huge-blocks", "tiny-blocks"]
)
def test_the_symptom_is_there(ward, name):
    sick, cured = ward[name, False][0].metrics, ward[name, True][0].metrics
    waits = [sorted(ticks for ticks, _ in m.ttft) for m in (sick, cured)]
    symptom = {
        "dynamic-prompt": lambda: sick.hit_rate == 0 and cured.hit_rate > 0.7,
        "small-pool": lambda: late_hits(*ward["small-pool", False]) < 0.2 < 0.8 < late_hits(*ward["small-pool", True]),
        "ping-pong": lambda: sick.computed_tokens > 1.3 * cured.computed_tokens,
        "starvation": lambda: waits[0][-1] > 10 * waits[0][len(waits[0]) // 2],
        "huge-blocks": lambda: max(s.running for s in sick.steps) < max(s.running for s in cured.steps) / 2,
        "tiny-blocks": lambda: sick.share("used", "held") > cured.share("used", "held"),
    }
    assert symptom[name]()


def test_the_leak_ends_in_waiting_for_ever_with_hardly_anybody_running(ward):
    patient = ward["leak", False][0]
    last = patient.metrics.steps[-1]
    assert (last.running, last.waiting) == (0, 4)
    assert last.held == 48  # by nobody, of 64 slots


def test_a_hit_on_the_whole_prompt_ends_in_an_error_at_length_k_times_b(ward):
    assert ward["whole-prompt-hit", False][0].error is not None
    assert "all 8 prompt tokens" in ward["whole-prompt-hit", False][1]["whole hits"][0]


def test_the_first_layer_and_request_are_named(ward):
    assert "attention of layer 0, request B, 13 tokens" in ward["unmasked-tail", False][1]["nan"][0]
    assert "layer 0, request B, 2601 tokens" in ward["half-precision-sum", False][1]["inexact"][0]
    assert "logical block 3: host" in ward["stale-table", False][1]["tables"][0]


def test_no_other_engine_notices():
    with faults.admit("borrowed-block") as sick, faults.admit("leak") as leaking, Healthy(3) as healthy:
        while healthy.step() is None and healthy.engine.has_unfinished:
            sick.step()
            leaking.step()
        assert alarms(healthy.examine()) == set()


def test_an_unknown_patient_names_those_there_are():
    with pytest.raises(ValueError, match="dynamic-prompt, small-pool, leak"):
        faults.admit("flu")


# -- healthy engines -----------------------------------------------------------------------------------------------


class Healthy(Patient):
    """A well engine under random traffic and settings. `sane`: settings that suit the traffic; else anything goes."""

    def __init__(self, seed: int, sane: bool = True, with_model: bool = False) -> None:
        self.rng, self.sane, self.with_model = random.Random(seed), sane, with_model
        super().__init__()

    def build(self) -> Engine:
        """Random settings."""
        rng = self.rng
        size = rng.choice((4, 8, 16)) if self.sane else rng.choice((1, 2, 3, 5, 16, 32))
        config = EngineConfig(
            block_size=size,
            num_blocks=512 if self.sane else rng.randint(-(-60 // size), 80),
            max_num_seqs=rng.randint(2, 12),
            max_num_batched_tokens=rng.choice((7, 32, 256)),
            mix_prefill_decode=rng.random() < 0.7,
            policy=rng.choice(("fcfs", "priority", "longest-prefix", "shortest-prompt")),
            eviction=rng.choice(("lru", "fifo")),
            watermark=rng.choice((0.0, 0.1)),
            enable_prefix_caching=self.sane or rng.random() < 0.7,
        )
        return engine_with_model(None, config) if self.with_model else Engine(config)

    def visits(self) -> list[Visit]:
        """Some shared prefixes, some strangers, some who leave."""
        rng, visits = self.rng, []
        for _ in range(rng.randint(4, 14)):
            shared = (f"system {rng.randrange(3)}", rng.choice((0, 9, 16, 24)))
            own = (f"question {rng.randrange(8)} {shared}", rng.randint(18, 30) if self.sane else rng.randint(1, 30))
            tick = rng.randint(1, 20)
            abort = tick + rng.randint(0, 12) if rng.random() < 0.2 else None
            visits.append(Visit(tick, tokens_of((shared, own), 512), rng.randint(1, 6 if self.sane else 20), abort))
        return visits


def test_healthy_engines_raise_no_alarm_over_many_runs():
    for seed in range(RUNS):
        with Healthy(seed) as patient:
            assert alarms(patient.run().examine()) == set(), f"seed {seed}"
            assert patient.error is None
            assert not patient.engine.has_unfinished


def test_bookkeeping_is_right_under_any_settings():
    exact = ("audit", "leaks", "tables", "whole hits")
    for seed in range(RUNS):
        with Healthy(seed, sane=False) as patient:
            findings = patient.run().examine()
            assert {name: findings[name] for name in exact if findings[name]} == {}, f"seed {seed}"
            assert patient.error is None, f"seed {seed}"
            assert not patient.engine.has_unfinished, f"seed {seed}"


def test_a_healthy_model_over_a_poisoned_pool_computes_nothing_but_numbers():
    from minivllm.lab.tensors import poison

    for seed in range(RUNS // 20):
        with Healthy(seed, sane=seed % 2 == 0, with_model=True) as patient:
            poison(patient.engine)
            findings = patient.run().examine()
            assert [findings[name] for name in ("audit", "tables", "nan", "inexact")] == [[]] * 4, f"seed {seed}"


def test_a_stethoscope_is_taken_off_again_and_refuses_an_engine_without_a_model():
    from minivllm.lab.tensors import Stethoscope

    with engine_with_model(None, EngineConfig(block_size=4, num_blocks=8)) as engine:
        ops, launch = engine.runner.decoder.ops, engine.runner.launch
        scope = Stethoscope(engine)
        assert engine.runner.decoder.ops is scope
        scope.remove()
        assert (engine.runner.decoder.ops, engine.runner.launch) == (ops, launch)
    with Engine(EngineConfig(num_blocks=8)) as engine, pytest.raises(ValueError, match="with a model"):
        Stethoscope(engine)


def test_poison_leaves_written_slots_alone():
    from minivllm.lab.tensors import poison

    answers = []
    for poisoned in (False, True):
        with Healthy(5, with_model=True) as patient:
            while patient.engine.tick < 200 and (patient.engine.tick < 21 or patient.engine.has_unfinished):
                if poisoned:
                    poison(patient.engine)
                patient.step()
            answers.append(patient.answers)
    assert answers[0] == answers[1] != {}


class Empty(Patient):
    def build(self):
        return Engine(EngineConfig(num_blocks=8))

    def visits(self):
        return []


@pytest.mark.parametrize(
    ("method", "gives", "words"),
    [
        ("build", None, "`build` gave None; it must return an Engine"),
        ("visits", None, "`visits` gave None; it must return a list of Visit"),
        ("visits", [(1, [2, 3], 4)], "`visits` gave .*; it must return a list of Visit"),
    ],
)
def test_a_patient_of_ones_own_says_what_its_methods_must_give(method, gives, words):
    with pytest.raises(TypeError, match=words):
        type("Own", (Empty,), {method: lambda self: gives})()


def test_a_patient_is_not_done_while_somebody_is_still_to_come():
    late = type("Late", (Empty,), {"visits": lambda self: [Visit(5, [1, 2], 1)], "max_ticks": 3})
    with late() as patient, Empty() as empty:
        assert not patient.run().done
        assert empty.run().done

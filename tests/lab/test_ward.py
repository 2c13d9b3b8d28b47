"""A patient under a number: examined freely, tested for points, diagnosed in three parts; and its signs tell the truth."""

import contextlib

import pytest
import torch

from minivllm.lab import record
from minivllm.lab.faults import INSTRUMENTS, PATIENTS, admit
from minivllm.lab.vital_signs import unlike
from minivllm.lab.ward import CAUSES, CURES, NOBODY_HAS, WARD, WHY_NOT, Case, board


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def cases():
    """Every case, run once."""
    made = {number: Case(number) for number in range(1, len(WARD) + 1)}
    for case in made.values():
        case.run()
    return made


def right(case):
    patient = case._patient
    return WARD[case.number - 1], patient.evidence()[0], patient.treatments[0]


def points(case, *diagnosis):
    """What a diagnosis earns that is the first one."""
    case._given.clear()
    return case.judge(*diagnosis)[0]


def test_every_patient_has_a_bed_a_cause_and_a_cure_of_its_own():
    assert sorted(WARD) == sorted(PATIENTS) == sorted(CAUSES.keys() - NOBODY_HAS.keys())
    assert NOBODY_HAS.keys() == WHY_NOT.keys()
    assert all(set(patient.treatments) <= CURES.keys() for patient in PATIENTS.values())
    assert len({patient.treatments[0] for patient in PATIENTS.values()}) == len(PATIENTS)


@pytest.mark.parametrize("number", range(1, len(WARD) + 1))
def test_the_right_diagnosis_earns_all_points_and_each_wrong_part_costs_its_own(cases, number):
    case = cases[number]
    cause, tick, cure = right(case)
    case.tests.clear()
    other_cause = next(c for c in CAUSES if c != cause)
    other_cure = next(c for c in CURES if c not in case._patient.treatments)
    elsewhere = next((t for t in range(1, len(case._told)) if t not in case._evidence), None)
    assert all(points(case, cause, at, one) == 10 for at in case._evidence for one in case._patient.treatments)
    assert points(case, other_cause, tick, cure) == 3  # a tick shows nothing to somebody who sees something else in it
    assert points(case, cause, tick, other_cure) == 7
    if elsewhere:
        assert points(case, cause, elsewhere, cure) == 7
        assert points(case, other_cause, elsewhere, other_cure) == 0


@pytest.mark.parametrize("number", range(1, len(WARD) + 1))
def test_the_evidence_is_in_the_recording_and_a_guess_is_no_evidence(cases, number):
    case = cases[number]
    evidence = case._patient.evidence()
    ticks = len(case.recorder.ticks)
    assert evidence
    assert all(1 <= tick <= ticks for tick in evidence)
    assert len(evidence) < ticks or case.number == 9  # a block for every token: in every tick


@pytest.mark.parametrize("name", PATIENTS)
def test_in_good_health_hardly_anything_looks_like_the_fault(name):
    with admit(name) as sick, admit(name, cured=True) as well:
        before, after = len(sick.run().evidence()), len(well.run().evidence())
    assert after < before or name in ("unmasked-tail", "half-precision-sum", "stale-table")  # where it *could* be seen


def test_the_first_instrument_is_free_and_a_repeated_one_is_paid_once(cases):
    case = Case(2)
    case.run()
    diagnosis = right(case)
    for name, left in (("leaks", 10), ("leaks", 10), ("nan", 9), ("tables", 8), ("nan", 8)):
        case.test(name)
        assert case.judge(*diagnosis)[0] == left
    for name in INSTRUMENTS:
        case.test(name)
    assert case.judge(*diagnosis)[0] == 0  # never below
    assert case.test("leaks") == ["tick 7: block 5: 1 reference nobody owns"]


def test_each_further_diagnosis_costs_a_point_and_the_same_one_again_costs_none():
    case = Case(1)
    right_one = ("dynamic-prompt", 7, "stable-text-first")
    assert [case.judge(*one)[0] for one in (right_one, right_one, ("leak", 7, "ageing"), right_one)] == [10, 10, 0, 9]


def test_what_is_done_to_the_engine_afterwards_changes_no_finding():
    case = Case(7)
    case.run()
    before = str(case), case.judge("whole-prompt-hit", 41, "leave-the-last-token")
    case.engine.add([1, 2, 3])
    with contextlib.suppress(RuntimeError):
        case.engine.run(max_steps=5)
    case.run()
    assert (str(case), case.judge("whole-prompt-hit", 41, "leave-the-last-token")) == before
    with pytest.raises(ValueError, match="a whole number from 1 to 41"):
        case.log(42)


def test_the_causes_that_nobody_has_are_refuted_by_what_is_said_against_them(cases):
    for case in cases.values():
        told = [event for events in case._told for event in events]
        runs = [event for event in told if event.kind == "run" and not event.decode]
        hits = {(event.request, event.index): event.block for event in told if event.kind == "hit"}
        assert writers_who_stand_still(case) == []
        assert all(run.start + run.count >= len(case.prompts[run.request]) for run in runs)
        assert all((name, before) in hits for name, index in hits for before in range(index))
        for cause in NOBODY_HAS:
            assert WHY_NOT[cause] in case.judge(cause, 1, "ageing")[1][0]


def writers_who_stand_still(case):
    """(tick, request): it has begun to write, keeps its seat, and gets nothing in a tick that computes prompt tokens."""
    writing, found = set(), []
    for tick, events in enumerate(case._told, 1):
        runs = {event.request for event in events if event.kind == "run"}
        gone = {event.request for event in events if event.kind in ("finish", "preempt")}
        if any(event.kind == "run" and not event.decode for event in events):
            found += [(tick, name) for name in sorted(writing - runs - gone)]
        writing |= {event.request for event in events if event.kind == "token"}
        writing -= gone
    return found


def test_a_wrong_cause_is_answered_with_the_instrument_that_would_show_it(cases):
    words = cases[1].judge("leak", 7, "stable-text-first")[1]
    assert words[0] == "✗ cause: leak. “leaks” would show it, and is silent"
    assert cases[2].judge("borrowed-block", 7, "ageing")[1][0].endswith("does speak, but for another reason")


def test_the_best_points_are_kept_and_shown(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("MINIVLLM_HOME", str(tmp_path))
    case = Case(1)
    case.run()
    case.diagnose()
    assert record.load()["results"] == {}
    case.diagnose("dynamic-prompt", 7, "stable-text-first")
    case.diagnose("leak", 7, "ageing")
    capsys.readouterr()
    board()
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["points", "10", "–"]


def test_bad_input_is_named_and_nothing_is_lost(cases):
    case = cases[3]
    before = list(case.tests)
    for call, words in (
        (lambda: Case(13), "patient is 13; allowed: a whole number from 1 to 12"),
        (lambda: Case("3"), "patient is '3'; allowed: a whole number from 1 to 12"),
        (lambda: case.log("7"), "first tick is '7'"),
        (lambda: case.diagnose(["leak"], 7, "ageing"), r"cause is \['leak'\]"),
        (lambda: case.diagnose("leak", "7", "ageing"), "tick is '7'; allowed: a whole number from 1 to 282"),
        (lambda: case.diagnose("leak", True, "ageing"), "tick is True"),
        (lambda: case.diagnose("leak", 283, "ageing"), "tick is 283"),
        (lambda: case.test("x-ray"), "instrument is 'x-ray'; allowed: audit"),
        (lambda: case.diagnose("flu", 1, "ageing"), "cause is 'flu'; allowed: borrowed-block"),
        (lambda: case.diagnose("leak", 1, "rest"), "cure is 'rest'; allowed: ageing"),
        (lambda: case.log(0), "a whole number from 1 to 282"),
        (lambda: case.log(5, 4), "last tick is 4; allowed: a whole number from 5 to 282"),
        (lambda: case.log(283), "first tick is 283"),
        (lambda: case.said("nobody"), "request is 'nobody'; allowed: A, B"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    assert case.tests == before


def test_a_log_shows_the_tick_in_which_a_step_failed(cases, capsys):
    cases[10].log(22)
    told = capsys.readouterr().out
    assert "C lets go of block 3" in told
    assert told.endswith("the step failed: the pool starts over, empty; whoever ran waits again\n")
    cases[7].log(41)
    told = capsys.readouterr().out
    assert "F prefills 0 tokens" in told
    assert told.endswith("the step failed; whoever ran waits again\n")
    assert cases[7].signs.preemptions == 0
    assert cases[10].said("C") != cases[10].should_say("C")  # never answered, and wrong


def test_many_lines_alike_are_folded_to_the_first_and_the_last(cases, capsys):
    cases[9].log(45)
    told = capsys.readouterr().out.splitlines()
    assert len(told) < 30
    assert any("lines like it" in line for line in told)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("stale-table", 4), ("unmasked-tail", 1), ("half-precision-sum", 1), ("borrowed-block", 1), ("leak", 0)],
)
def test_wrong_text_is_counted_against_a_healthy_engine(name, wrong):
    with admit(name) as sick, admit(name, cured=True) as well:
        assert len(unlike(sick.run())) == wrong
        assert unlike(well.run()) == []


def test_what_should_have_been_said_is_what_a_healthy_engine_says(cases):
    case = cases[5]
    with admit("stale-table", cured=True) as well:
        well.run()
        assert {name: case.should_say(name) for name in well.answers} == well.answers
    assert case.said("A") != case.should_say("A")


def test_only_the_owner_of_the_bad_block_suffers_whatever_the_memory_held_before(monkeypatch):
    empty = torch.empty

    def dirty(*shape, **options):
        made = empty(*shape, **options)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", dirty)
    with admit("unmasked-tail") as patient:
        monkeypatch.undo()
        assert unlike(patient.run()) == ["B"]

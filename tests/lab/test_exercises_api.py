import pytest

from minivllm.lab import Wrong, check, exercise, expect, hint, progress, require
from minivllm.lab.grading import grade

pytestmark = pytest.mark.usefixtures("exercises")


@pytest.fixture(autouse=True)
def double(exercises):
    @exercise("03.double", hints=["twice", "x + …", "x + x"])
    def double(student):
        require(student(2) == 4, f"2 doubled is 4, not {student(2)}")
        return "doubled"


def test_a_right_answer_gets_a_tick_and_is_remembered(capsys):
    check("03.double", lambda x: 2 * x)
    progress()
    assert capsys.readouterr().out == "✓ doubled\n03  ✓ double   predictions 0, hints 0\nsolved 1 of 1\n"


def test_a_wrong_answer_gets_a_cross_and_the_hint(capsys):
    check("03.double", lambda x: x**3)
    assert capsys.readouterr().out == "✗ 2 doubled is 4, not 8\n"


def unsolved_by_ellipsis(x):
    return ...


def unsolved_by_error(x):
    raise NotImplementedError


@pytest.mark.parametrize("answer", [..., unsolved_by_ellipsis, unsolved_by_error])
def test_an_exercise_as_handed_out_is_neither_right_nor_wrong(answer, capsys):
    check("03.double", answer)
    progress()
    assert capsys.readouterr().out == "○ not attempted\n03  ○ double   predictions 0, hints 0\nsolved 0 of 1\n"


def stumbles(x):
    y = x
    return y["no"]


def test_an_error_in_the_answer_is_shown_with_its_line():
    verdict = grade("03.double", stumbles)
    assert verdict.status == "✗"
    assert verdict.words.startswith("your code raised TypeError: 'int' object is not subscriptable (line 3: return y")


def test_a_result_in_place_of_the_function_is_named():
    assert grade("03.double", 4).words == "give the function itself, its name without brackets, not 4"


def test_hints_come_one_by_one_and_are_counted(capsys):
    hint("03.double")
    hint("03.double", 3)
    progress()
    assert capsys.readouterr().out.splitlines()[:3] == [
        "hint 1 of 3: twice",
        "hint 3 of 3: x + x",
        "03  ○ double   predictions 0, hints 3",
    ]
    with pytest.raises(ValueError, match="allowed: 1, 2 or 3"):
        hint("03.double", 4)


def test_progress_can_be_asked_for_one_chapter(capsys):
    @exercise("04.other", hints=["a", "b", "c"])
    def other(student):
        return ""

    progress("03")
    assert capsys.readouterr().out == "03  ○ double   predictions 0, hints 0\nsolved 0 of 1\n"
    with pytest.raises(ValueError, match="allowed: 03, 04"):
        progress("05")


def test_a_name_that_is_not_there_is_answered_with_those_that_are():
    with pytest.raises(ValueError, match=r"no exercise is called '03.dubble'; there are: 03.double"):
        check("03.dubble", 1)


@pytest.mark.parametrize(("name", "hints"), [("slot", ["a", "b", "c"]), ("03.slot", ["a"])])
def test_an_exercise_needs_a_chapter_and_three_hints(name, hints):
    with pytest.raises(ValueError, match="allowed"):
        exercise(name, hints=hints)


def test_a_checker_may_raise_wrong_itself():
    @exercise("03.never", hints=["a", "b", "c"])
    def never(student):
        raise Wrong("never")

    assert str(grade("03.never", 1)) == "✗ never"


def test_expect_prints_the_message_of_what_was_raised(capsys):
    with expect(ValueError, match="block_size"):
        raise ValueError("block_size is 0\nmore")
    assert capsys.readouterr().out == "as expected, ValueError: block_size is 0\n"


def test_expect_fails_when_nothing_is_raised():
    with (
        pytest.raises(AssertionError, match="expected ValueError or KeyError, and nothing"),
        expect((ValueError, KeyError)),
    ):
        pass


def test_expect_fails_when_the_message_is_another():
    with pytest.raises(AssertionError, match="expected a message like 'pool', got ValueError: block"):
        with expect(ValueError, match="pool"):
            raise ValueError("block")


def test_expect_lets_another_error_through():
    with pytest.raises(KeyError), expect(ValueError):
        raise KeyError("x")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda numbers: None, "your function returned None, and nothing can be done with that (TypeError: "),
        (lambda numbers: 1, "your function returned 1, and nothing can be done with that (TypeError: "),
        (lambda numbers: numbers["x"], "your code raised TypeError: "),
    ],
)
def test_what_a_checker_cannot_use_is_shown_and_not_blamed_on_the_code(answer, words):
    @exercise("03.least", hints=["a", "b", "c"])
    def least(student):
        require(min(student([3, 1, 2])) == 1, "the least is 1")
        return "least"

    verdict = grade("03.least", answer)
    assert verdict.status == "✗"
    assert verdict.words.startswith(words)
    assert verdict.words.endswith("is a `return` missing?") == ("None" in words)

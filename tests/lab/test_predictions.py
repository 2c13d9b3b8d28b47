import pytest

from minivllm.lab import predict, reveal
from minivllm.lab.predictions import number, show, verdict


def buttons(form):
    return list(form.children[1].children)


def test_a_number_kept_in_the_form_is_shown_against_the_result(capsys):
    form = predict("03.use", "How full?", unit="%")
    field, _, keep = form.children[1].children
    field.value = "60"
    keep.click()
    assert "you said 60 %" in form.note.value
    reveal("03.use", 83, "%")
    assert capsys.readouterr().out == "you said 60 %; it is 83 %: off by 23 %\n"


def test_a_choice_is_made_by_its_button_and_can_be_changed(capsys):
    form = predict("04.nan", "Does it matter?", choices=["yes", "no"])
    buttons(form)[0].click()
    reveal("04.nan", False)
    buttons(form)[1].click()
    reveal("04.nan", False)
    assert capsys.readouterr().out == "you said yes; it is no\nyou said no: right\n"


def test_without_a_prediction_the_result_stands_alone(capsys):
    predict("03.use", "How full?", unit="%")
    reveal("03.use", 83, "%")
    assert capsys.readouterr().out == "it is 83 % (no prediction was made)\n"


def test_what_is_no_number_is_refused_in_the_form_and_nothing_is_kept():
    form = predict("03.use", "How full?")
    form.children[1].children[0].value = "a lot"
    assert "not a number" in form.note.value
    with pytest.raises(ValueError, match="not among the choices: a, b"):
        predict("x", "?", choices=["a", "b"]).answer("c")
    assert "no prediction yet" in predict("03.use", "How full?").note.value


def test_a_prediction_is_still_there_when_the_cell_runs_again():
    predict("03.use", "How full?").answer(60)
    assert "you said 60" in predict("03.use", "How full?").note.value


def test_the_stored_text_is_the_question_whatever_was_answered():
    form = predict("03.use", "Is 1 < 2?", unit="%")
    before = form._repr_mimebundle_()
    form.answer(60)
    after = form._repr_mimebundle_()
    assert before["text/plain"] == after["text/plain"] == "Predict · Is 1 < 2?  [ ____ % ]"
    assert "1 &lt; 2" in after["text/html"]
    assert before["text/html"] == after["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in after


@pytest.mark.parametrize("choices", [["one"], ["a", "a"], []])
def test_choices_must_leave_a_choice(choices):
    with pytest.raises(ValueError, match="two or more different"):
        predict("x", "?", choices=choices)


@pytest.mark.parametrize(
    ("typed", "value"),
    [("60", 60), (" 60 % ", 60), ("1,024", 1024), ("1 000 000", 1e6), ("1e9", 1e9), (0.5, 0.5)],
)
def test_numbers_are_read_as_people_type_them(typed, value):
    assert number(typed) == value


def test_a_fraction_of_a_percent_is_meant_or_mistyped():
    assert number("0.9 %", "%") == 0.9
    assert number(0.9, "%") == 0.9
    with pytest.raises(ValueError, match=r"0\.9 could be 0\.9 % or 90 %; type it with its sign"):
        number("0.9", "%")


def test_a_single_one_is_not_many():
    assert verdict(4, 5, "ticks") == "you said 4 ticks; it is 5 ticks: off by 1 tick"


def test_a_unit_may_be_typed_behind_the_number():
    assert number("40 tok/s", "tok/s") == 40


@pytest.mark.parametrize("typed", ["-5", "150", "100.5 %", -1])
def test_a_share_is_from_0_to_100(typed):
    with pytest.raises(ValueError, match="allowed: 0 to 100 %"):
        number(typed, "%")
    assert [number(end, "%") for end in (0, "100")] == [0, 100]
    assert number("150", "tok/s") == 150


@pytest.mark.parametrize("typed", ["", "many", "1,5", "nan", "inf", "1 2"])
def test_what_is_no_number_is_named(typed):
    with pytest.raises(ValueError, match="is not a number"):
        number(typed)


@pytest.mark.parametrize(
    ("said", "value", "words"),
    [
        (23040, 23040, "well predicted"),
        (100, 1000, "off by a factor of 10"),
        (0, 5, "off by 5"),
        (-2, 5, "off by 7"),
    ],
)
def test_the_miss_is_said_in_the_way_that_fits(said, value, words):
    assert verdict(said, value).endswith(words)


def test_values_are_shown_short():
    assert [show(v) for v in (1024, 0.12345, 1234.5, "no", float("inf"))] == [
        "1,024",
        "0.123",
        "1,234",
        "no",
        "inf",
    ]

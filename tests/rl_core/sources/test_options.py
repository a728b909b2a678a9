"""Options are read in every layout, and an answer becomes the letter of its option however the row names it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.sources.options import read_options, right_letter

CAT_DOG = {"A": "cat", "B": "dog"}


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"options": ["cat", "dog"]}, "options"),
        ({"options": ["A. cat", "(B) dog"]}, "options"),
        ({"options": {"b": "dog", "a": "cat"}}, "options"),
        ({"options": {"A": "cat", "B": "dog", "C": None}}, "options"),
        ({"options": "['cat', 'dog']"}, "options"),
        ({"options": ' {"A": "cat", "B": "dog"}'}, "options"),
        ({"options": {"option_1": "cat", "option_2": "dog"}}, "options"),
        ({"choices": {"text": ["cat", "dog"], "label": ["1", "2"]}}, "choices"),
        ({"A": "cat", "B": "dog", "C": "", "D": float("nan")}, ("A", "B", "C", "D")),
    ],
)
def test_every_layout_is_read(values, key):
    assert read_options(values, key) == CAT_DOG


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "the options are NoneType, not a list"),
        ("cat", "the options are str"),
        ("[cat", "the options are str"),
        ("[" * 9000, "the options are str"),
        (["cat"], "there are 1 options"),
        (["cat", None, "dog"], "option B is empty, not a text"),
        (["cat", {"bytes": b""}], "option B is dict, not a text"),
        ([str(number) for number in range(27)], "there are 27 options and 26 letters"),
    ],
)
def test_options_that_cannot_be_asked_are_named(value, reason):
    with pytest.raises(ValueError, match=reason):
        read_options({"options": value}, "options")


OPTIONS = st.lists(st.text("abcdefg 123", min_size=2).map(str.strip).filter(lambda text: len(text) > 1), min_size=2)


@given(OPTIONS.filter(lambda texts: len(texts) < 27 and len(set(texts)) == len(texts)), st.data())
def test_all_ways_to_name_an_option_give_its_letter(texts, data):
    options = read_options({"options": texts}, "options")
    index = data.draw(st.integers(0, len(texts) - 1))
    letter = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index]
    assert right_letter(index, options, "index") == right_letter(str(index + 1), options, "number") == letter
    assert (
        right_letter(texts[index], options, "text") == right_letter(f"({letter.lower()})", options, "letter") == letter
    )
    assert right_letter(right_letter(index, options, "index"), options, "letter") == letter


def test_several_right_options_are_all_named():
    options = dict(zip("ABCD", ["cat", "dog", "cow", "pig"], strict=True))
    assert right_letter([2, 0], options, "index") == "A,C"
    assert [right_letter(text, options, "letter") for text in ("A,C", "ac", "A and C", "B. dog")] == ["A,C"] * 3 + ["B"]


@pytest.mark.parametrize(
    ("answer", "way", "reason"),
    [
        (2, "index", "'2' is not an index from 0 of the options 'cat, dog'"),
        (-1, "index", "not an index"),
        (0, "number", "not a number from 1"),
        ("cow", "text", "not a text of"),
        ("C", "letter", "not a letter"),
        ("", "letter", "not a letter"),
        (True, "index", "not an index"),
    ],
)
def test_an_answer_that_names_no_option_is_refused(answer, way, reason):
    with pytest.raises(ValueError, match=reason):
        right_letter(answer, CAT_DOG, way)

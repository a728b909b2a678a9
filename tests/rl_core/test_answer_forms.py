"""The short answer is found in every form in which data sets write one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.answer_forms import doubt, find_answer, form_of, short_answer

WRAPPED = (
    "She has 3 and finds 2, so 3+2=<<3+2=5>>5.\n#### {}",
    "<answer> {} </answer>",
    "<think>First \\boxed{{9}}?</think>\nNo, it is \\boxed{{{}}}.",
    "{}<|im_end|>",
    "{}</s>\n",
    "Some steps.\n#### {}<|endoftext|>",
)
ANSWERS = st.from_regex(
    r"[A-Za-z0-9+*/.,^ -]{1,12}|\\frac\{[0-9]\}\{[0-9]{1,2}\}|\\sqrt\{x\^\{[0-9]\}\}", fullmatch=True
)


@given(ANSWERS.map(str.strip).filter(bool), st.sampled_from(WRAPPED))
def test_the_answer_of_a_form_is_found(answer, form):
    assert short_answer(form.format(answer)) == answer
    assert short_answer(answer) == answer


def test_the_last_match_counts_and_an_empty_one_does_not():
    assert find_answer(r"<a>(.*?)</a>", "<a>1</a> <a> 2 </a>") == "2"
    assert find_answer(r"<a>(.*?)</a>", "<a> </a>") is None
    assert find_answer(r"(\d)|x", "no") is None


def test_a_form_is_that_of_nine_in_ten():
    texts = [f"So.\n#### {number}" for number in range(9)]
    form = form_of([*texts, "broken"])
    assert form is not None and form.place == "behind ####"
    assert form_of([*texts[:8], "broken", "broken"]) is None
    assert form_of([]) is form_of(["5", "x < 5", "#### a heading\nand a text"]) is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("5", None),
        ("\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}", None),
        ("[3, 4]", None),
        ("the red circle on the left", "is a sentence"),
        ("x" * 101, "is a sentence"),
        ("<think>a</think> 5", "holds a tag"),
        ("5\n6", "has several lines"),
        ('{"style": "rule", "ground_truth": "5"}', "is JSON"),
    ],
)
def test_an_answer_that_nobody_gives_word_for_word_is_doubted(answer, why):
    assert doubt(answer) == why

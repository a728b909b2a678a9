import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.evaluation.protocols.superclevr_r1v import compute_score, parse
from tests.rl_core.rewards.samples import make_sample

PIECES = st.sampled_from(
    ["<answer>", "</answer>", "<think>", "</think>", "3", "10", "007", "٣", " ", "\n", "three", "-", "3.0", "²"]
)


@given(st.lists(PIECES, max_size=12).map("".join), st.integers(0, 12))
def test_it_counts_as_the_published_script_does(response: str, truth: int) -> None:
    """The script's rule in its own terms: the first match of this pattern, as an int, equals the item's int."""
    match = re.search(r"<answer>\s*(\d+)\s*</answer>", response)
    expected = match is not None and int(match.group(1)) == truth
    score = compute_score(make_sample(response, str(truth)))
    assert score == {"overall": float(expected), "accuracy": float(expected)}
    assert (parse(response) is None) == (match is None)


@pytest.mark.parametrize(
    ("response", "answer", "is_right"),
    [
        ("<think>3 cars, 2 buses</think>\n<answer> 5 </answer>", "5", True),
        ("<answer>5</answer>", "5", True),  # no thoughts are asked for
        ("<answer>five</answer> <answer>5</answer>", "5", True),  # blocks without a number are passed over
        ("<answer>4</answer> <answer>5</answer>", "4", False),
        ("The answer is 5", None, False),
        ("<answer>5 items</answer>", None, False),
        ("<answer>" + "9" * 5000 + "</answer>", "9" * 5000, False),
    ],
)
def test_by_hand(response: str, answer: str | None, is_right: bool) -> None:
    assert parse(response) == answer
    assert compute_score(make_sample(response, "5"))["accuracy"] == is_right

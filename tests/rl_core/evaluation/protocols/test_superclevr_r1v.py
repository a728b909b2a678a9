import re

from hypothesis import given
from hypothesis import strategies as st

from rl_core.evaluation.protocols.superclevr_r1v import compute_score, parse
from tests.rl_core.rewards.samples import make_sample

PIECES = st.sampled_from(
    ["<answer>", "</answer>", "<think>", "</think>", "3", "10", "007", "٣", " ", "\n", "three", "-", "3.0", "²"]
)


@given(st.lists(PIECES, max_size=12).map("".join), st.integers(0, 12))
def test_the_superclevr_protocol_counts_as_the_published_script_does(response, truth):
    """The script's rule in its own terms: the first match of this pattern, as an int, equals the item's int."""
    match = re.search(r"<answer>\s*(\d+)\s*</answer>", response)
    expected = match is not None and int(match.group(1)) == truth
    score = compute_score(make_sample(response, str(truth)))
    assert score == {"overall": float(expected), "accuracy": float(expected)}
    assert parse(response) == (match and match.group(1))


def test_a_number_that_python_does_not_convert_is_wrong():
    response = "<answer>" + "9" * 5000 + "</answer>"
    assert parse(response) == "9" * 5000
    assert compute_score(make_sample(response, "5"))["accuracy"] == 0.0

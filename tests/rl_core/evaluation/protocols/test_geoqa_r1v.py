import pytest

from rl_core.evaluation.protocols.geoqa_r1v import compute_score, parse
from tests.rl_core.rewards.samples import make_sample


@pytest.mark.parametrize(
    ("response", "truth", "is_right"),
    [
        ("<think>180 - 40 = 140</think> <answer>140.0</answer>", "140°", True),
        ("<think>So EC = 5.0 - 2.0 = 3.0.</think> <answer>3.0</answer>", "3cm", True),
        ("The degree of the angle is 65.", "65°", True),  # no tags are asked for
        ("<think>It is 40.</think> <answer>40</answer>", "140°", False),
        # A number right behind a tag is none to math-verify: what the thoughts end with is read.
        ("<think>It is 40.</think><answer>140</answer>", "140°", False),
        ("<answer>140</answer>", "140°", False),
        ("The ratio is 2/5.", "\\frac{2}{5}", True),
        ("It is $2\\sqrt{3}$", "2√{3}", False),
        ("It is 2", "2√{3}", True),  # the root of such a truth is not read
        ("The area is $12\\pi$.", "12π", False),
        ("no idea", "140°", False),
        ("", "140°", False),
    ],
)
def test_grades_of_the_published_script(response, truth, is_right):
    """What math-verify 0.5.2 with latex2sympy2_extended 1.0.6, the published environment, says about these."""
    assert compute_score(make_sample(response, truth)) == {"overall": float(is_right), "accuracy": float(is_right)}


def test_the_answer_that_is_read_is_the_first_expression():
    assert parse("<think>x</think> It is 40.") == "40"
    assert parse("no idea") is None

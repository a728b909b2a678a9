"""The built-in scorers: published numbers for published names, and the counting rule."""

import importlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.rewards.builtin import count, math, r1v
from rl_core.rewards.registry import BUILTIN
from tests.rl_core.rewards.samples import make_sample

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "rewards.json").read_text())
PUBLISHED = [(name, case) for name in ("math", "r1v") for case in GOLDEN[name]]


@pytest.mark.parametrize(("name", "case"), PUBLISHED)
def test_scores_equal_the_published_ones(name: str, case: dict) -> None:
    module = importlib.import_module(BUILTIN[name])
    score = module.compute_score(make_sample(case["response"], case["ground_truth"]))
    assert score == pytest.approx(case["expected"], abs=1e-6)


@pytest.mark.parametrize("name", BUILTIN)
@pytest.mark.parametrize("answer", ["0", "3", "12"])
def test_the_exemplar_of_a_scorer_gets_its_full_score_and_parses(name: str, answer: str) -> None:
    module = importlib.import_module(BUILTIN[name])
    exemplar = module.exemplar(answer)
    assert set(module.compute_score(make_sample(exemplar, answer)).values()) == {1.0}
    assert module.parse(exemplar) == answer


@pytest.mark.parametrize("scorer", [math, r1v, count])
@given(weight=st.floats(0, 1), response=st.text(max_size=60))
def test_overall_is_the_weighted_sum_of_the_other_two(scorer, weight: float, response: str) -> None:
    score = scorer.compute_score(make_sample(response, "3"), format_weight=weight)
    assert set(score) == {"overall", "accuracy", "format"}
    assert score["overall"] == pytest.approx((1 - weight) * score["accuracy"] + weight * score["format"])


@pytest.mark.parametrize(
    ("response", "accuracy", "form"),
    [
        ("<answer>3</answer>", 1, 1),
        ("<answer> 3\n</answer>\n", 1, 1),
        ("<answer>03</answer>", 1, 1),
        ("<answer>4</answer>", 0, 1),
        ("I see three. <answer>3</answer>", 1, 1),
        ("<answer>3</answer> indeed", 1, 0),
        ("<answer>3</answer><answer>4</answer>", 1, 0),
        ("<answer>4</answer><answer>3</answer>", 0, 0),
        ("<answer>three</answer><answer>3</answer>", 1, 0),
        ("<answer>3.0</answer>", 0, 0),
        ("<answer>-3</answer>", 0, 0),
        ("<answer>٣</answer>", 0, 0),
        ("<answer>3", 0, 0),
        ("3", 0, 0),
        ("<answer>" + "3" * 5000 + "</answer>", 0, 0),
        ("", 0, 0),
    ],
)
def test_count_reads_the_first_number_in_an_answer_block(response: str, accuracy: int, form: int) -> None:
    score = count.compute_score(make_sample(response, " 3 "))
    assert score == {"overall": pytest.approx(0.9 * accuracy + 0.1 * form), "accuracy": accuracy, "format": form}


def test_count_names_a_ground_truth_that_is_no_number() -> None:
    with pytest.raises(ValueError, match="'many' is no whole number"):
        count.compute_score(make_sample("<answer>3</answer>", "many"))


@pytest.mark.parametrize(
    ("parse", "response", "answer"),
    [
        (math.parse, r"\boxed{1} then \boxed{\frac{1 }{ 2}}", r"\frac{1 }{ 2}"),
        (math.parse, r"\boxed{1 / 2}", "1/2"),
        (math.parse, r"\boxed{1", None),
        (r1v.parse, "<answer> 5 </answer><answer>6</answer>", "5"),
        (r1v.parse, "<answer>\n5</answer>", None),
        (r1v.parse, "5", None),
        (count.parse, "<answer>five</answer> <answer>5</answer>", "5"),
        (count.parse, "<answer>five</answer>", None),
    ],
)
def test_parse_gives_the_answer_that_is_scored(parse, response: str, answer: str | None) -> None:
    assert parse(response) == answer


def test_r1v_counts_what_its_grader_stumbles_over_as_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(given: str, truth: str) -> bool:
        raise IndexError

    monkeypatch.setattr(r1v, "grade_answer", stumble)
    assert r1v.compute_score(make_sample("<think></think><answer>3</answer>"))["overall"] == 0.5

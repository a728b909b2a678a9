"""The built-in scorers: published numbers for published names, and the counting rule."""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.reward import COMPONENTS, RewardConfig
from rl_core.rewards.builtin import count, math, r1v
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.registry import BUILTIN
from tests.rl_core.rewards.samples import make_sample

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "rewards.json").read_text())
PUBLISHED = [(name, case) for name, cases in GOLDEN.items() for case in cases]
LIMITS = {"max_response_length": 1000, "overlong_buffer_length": 200}
KWARGS = {
    "dapo": LIMITS | {"overlong_penalty_factor": 1.0},
    "overlong": LIMITS,
    "length": {"target_length": 10, "max_length": 20},
}
"""Arguments without a default."""

JUDGES = ("count", "dapo", "geoqa", "math", "r1v")
"""Those that compare answers; `choice` does too, but numbers are none."""


def score(name: str, response: str, truth: str = "3", *, length: int = 5, **kwargs) -> dict[str, float]:
    module = importlib.import_module(BUILTIN[name])
    return module.compute_score(make_sample(response, truth, length=length), **KWARGS.get(name, {}) | kwargs)


@pytest.mark.parametrize(("name", "case"), PUBLISHED)
def test_scores_equal_the_published_ones(name, case):
    length, kwargs = case.get("response_length", 5), case.get("kwargs", {})
    result = score(name, case["response"], case["ground_truth"], length=length, **kwargs)
    assert result == pytest.approx(case["expected"], abs=1e-6)


@pytest.mark.parametrize("name", JUDGES)
@pytest.mark.parametrize("answer", ["0", "3", "12"])
def test_the_exemplar_of_a_judge_gets_its_full_score_and_parses(name, answer):
    module = importlib.import_module(BUILTIN[name])
    result = score(name, module.exemplar(answer), answer)
    assert (result["overall"], result["accuracy"]) == (1.0, 1.0)
    assert module.parse(module.exemplar(answer)) == answer


@pytest.mark.parametrize(
    ("name", "best"), [("choice", 1.0), ("format", 1.0), ("length", 1.0), ("overlong", 0.0), ("repetition", 0.0)]
)
def test_the_exemplar_of_the_others_gets_their_full_score_too(name, best):
    module = importlib.import_module(BUILTIN[name])
    assert score(name, module.exemplar("B"), "B")["overall"] == best


def test_every_builtin_is_tried_above_and_its_components_are_known():
    assert set(BUILTIN) == {*JUDGES, "choice", "format", "length", "overlong", "repetition"} == set(COMPONENTS)


def term(function: str, **more: str) -> dict:
    return {"function": function, "kwargs": KWARGS.get(function, {}), **more}


def test_each_returns_the_components_that_planning_knows():
    by_source = {name: term(name) for name in BUILTIN}
    by_source["mixed"] = {"mixture": [term("length"), term("count"), term("format", name="form")]}
    config = RewardConfig.model_validate({"by_source": by_source, "workers": 1})
    response = r"<think>x</think> Answer: \boxed{3}"
    samples = [make_sample(response, "B" if name == "choice" else "3", source=name) for name in by_source]
    with RewardPool(config) as pool:
        scores = pool.score_all(samples)
    for name, score in zip(by_source, scores, strict=True):
        assert score.error is None, (name, score.error)
        known = config.by_source[name].components
        assert known is not None and set(known) == set(score.components), name


def test_the_components_of_a_users_function_are_not_known():
    config = RewardConfig.model_validate({"mixture": [term("count"), term("own.py:score")]})
    assert config.components is None


@pytest.mark.parametrize("scorer", [math, r1v, count])
@given(weight=st.floats(0, 1), response=st.text(max_size=60))
def test_overall_is_the_weighted_sum_of_the_other_two(scorer, weight, response):
    score = scorer.compute_score(make_sample(response, "3"), format_weight=weight)
    assert set(score) == {"overall", "accuracy", "format"}
    assert score["overall"] == pytest.approx((1 - weight) * score["accuracy"] + weight * score["format"])


@pytest.mark.parametrize(
    ("response", "accuracy", "form"),
    [
        ("<answer>3</answer>", 1, 1),
        ("<answer> 3\n</answer>\n", 1, 1),
        ("<answer>03</answer>", 1, 1),
        ("I see three. <answer>3</answer>", 1, 1),
        ("<answer>3</answer> indeed", 1, 0),
        ("<answer>4</answer><answer>3</answer>", 0, 0),
        ("<answer>three</answer><answer>3</answer>", 1, 0),
        ("<answer>3.0</answer>", 0, 0),
        ("<answer>٣</answer>", 0, 0),
        ("3", 0, 0),
        ("<answer>" + "3" * 5000 + "</answer>", 0, 0),
        ("", 0, 0),
    ],
)
def test_count_reads_the_first_number_in_an_answer_block(response, accuracy, form):
    score = count.compute_score(make_sample(response, " 3 "))
    assert score == {"overall": pytest.approx(0.9 * accuracy + 0.1 * form), "accuracy": accuracy, "format": form}


@pytest.mark.parametrize(
    ("name", "truth", "why"),
    [("count", "many", "'many' is not a whole number"), ("choice", "circle", "'circle' is not a choice")],
)
def test_a_ground_truth_of_another_kind_is_named(name, truth, why):
    with pytest.raises(ValueError, match=why):
        score(name, "<answer>3</answer>", truth)


@pytest.mark.parametrize(
    ("parse", "response", "answer"),
    [
        (math.parse, r"\boxed{1} then \boxed{\frac{1 }{ 2}}", r"\frac{1 }{ 2}"),
        (math.parse, r"\boxed{1 / 2}", "1/2"),
        (math.parse, r"\boxed{1", None),
        (r1v.parse, "<answer> 5 </answer><answer>6</answer>", "5"),
        (r1v.parse, "<answer>\n5</answer>", "<answer>\n5</answer>"),
        (r1v.parse, " 5 ", "5"),
        (r1v.parse, " ", None),
        (count.parse, "<answer>five</answer> <answer>5</answer>", "5"),
        (count.parse, "<answer>five</answer>", None),
    ],
)
def test_parse_gives_the_answer_that_is_scored(parse, response, answer):
    assert parse(response) == answer


def test_r1v_counts_what_its_grader_stumbles_over_as_wrong(monkeypatch):
    def stumble(given, truth):
        raise IndexError

    monkeypatch.setattr("mathruler.grader.grade_answer", stumble)
    assert r1v.compute_score(make_sample("<think></think><answer>3</answer>"))["overall"] == 0.5


@pytest.mark.parametrize("name", ["math", "r1v"])
def test_the_grader_decides_what_is_equal(name):
    response = importlib.import_module(BUILTIN[name]).exemplar("2/4")
    accuracies = [score(name, response, "1/2", grader=grader)["accuracy"] for grader in ("mathruler", "math_verify")]
    assert accuracies == [0.0, 1.0]


@pytest.mark.parametrize(
    ("response", "truth", "accuracy"),
    [
        ("<think>a</think><answer>145</answer>", "145", 1.0),
        ("<think>a</think><answer> 145° </answer>", "<answer> 145° </answer>", 1.0),  # as R1-V's data write it
        ("<think>a</think><answer>$\\frac{3}{6}$</answer>", "$\\frac{1}{2}$", 1.0),
        ("<think>a</think><answer>144</answer>", "145", 0.0),
        ("<think>145</think><answer>left</answer>", "left", 1.0),  # no mathematics, equal text
        ("145", "145", 1.0),
        ("", "145", 0.0),
    ],
)
def test_geoqa_verifies_formulas_and_else_compares_text(response, truth, accuracy):
    assert score("geoqa", response, truth)["accuracy"] == accuracy


@pytest.mark.parametrize(
    ("response", "truth", "accuracy", "form"),
    [
        ("<answer>B</answer>", "B", 1, 1),
        ("<answer> (b) </answer>", "B. a circle", 1, 1),
        ("<think>A?</think> <answer>B. a circle</answer>", "(B)", 1, 1),
        ("<answer>A</answer> no, <answer>B</answer>", "B", 1, 1),
        ("so \\boxed{\\text{B}}", "B", 1, 1),
        ("<answer>\\boxed{B}</answer>", "B", 1, 1),
        (" b. ", "B", 1, 0),
        ("B is the one", "B", 0, 0),
        ("A circle", "A", 0, 0),
        ("<answer>Because</answer>", "B", 0, 0),
        ("<answer>**B**</answer>", "B", 1, 1),
        ("<answer>$B$</answer>", "B", 1, 1),
        ("\\boxed{\\mathrm{B}}", "(b)", 1, 1),
        ("<answer>Option B: a circle</answer>", "B", 1, 1),
        ("<answer>B - a circle</answer>", "B", 1, 1),
        ("The answer is B.", "B", 1, 0),
        ("<answer>A, B</answer>", "A", 0, 1),
        ("<answer>A) or B)</answer>", "A", 0, 1),
        ("<answer>A, or maybe B</answer>", "A", 0, 0),
        ("<answer>A: a circle, B: a square</answer>", "A", 0, 0),
        ("<answer>C) vitamin C</answer>", "C. vitamin C", 1, 1),
    ],
)
def test_choice_reads_a_letter(response, truth, accuracy, form):
    expected = {"overall": pytest.approx(0.9 * accuracy + 0.1 * form), "accuracy": accuracy, "format": form}
    assert score("choice", response, truth) == expected


@pytest.mark.parametrize("name", [*JUDGES, "choice"])
@given(answer=st.sampled_from(["3", "B"]), before=st.sampled_from(["", "so ", "<think>4</think> ", "Answer: A\n"]))
def test_a_right_response_has_an_answer_that_counts_for_the_majority(name, answer, before):
    module = importlib.import_module(BUILTIN[name])
    forms = [answer, f"<answer>{answer}</answer>", f"\\boxed{{{answer}}}", f"Answer: {answer}", f"**{answer}**"]
    truths = {"count": "3", "choice": "B"}
    for form in forms:
        result = score(name, before + form, truths.get(name, answer))
        right = result.get("accuracy_normalized", result["accuracy"]) >= 0.5
        assert not right or module.parse(before + form) is not None, (before + form, result)


@given(
    chosen=st.sets(st.sampled_from("ABCDE"), min_size=1),
    truth=st.sets(st.sampled_from("ABCDE"), min_size=1),
    separators=st.tuples(*[st.sampled_from([",", ", ", " and ", "; ", "/", ".", " "])] * 2),
    mark=st.sampled_from(["<answer>{}</answer>", "\\boxed{{{}}}", "**{}**", "{}."]),
)
def test_choice_wants_all_of_the_right_letters_and_no_other(chosen, truth, separators, mark):
    written, expected = (between.join(sorted(each)) for each, between in zip((chosen, truth), separators, strict=True))
    assert score("choice", mark.format(written), expected)["accuracy"] == float(chosen == truth)


THINKING = {"format": [{"form": "tagged"}, {"form": "boxed"}], "geoqa": [{}], "math": [{}], "r1v": [{}]}
"""[reward] -> its arguments in turn; those that ask for `<think>...</think>`."""
PIECES = st.sampled_from(
    ["3", "<think>", "</think>", "\n", " ", "<answer>", "</answer>", "<answer>3</answer>", "\\boxed{3}"]
)


@pytest.mark.parametrize(("name", "kwargs"), [(name, kwargs) for name, many in THINKING.items() for kwargs in many])
@given(response=st.lists(PIECES, max_size=6).map("".join), space=st.sampled_from(["", "\n", " \n\n"]))
def test_the_opening_tag_that_the_chat_template_writes_is_the_responses(name, kwargs, response, space):
    compute_score = importlib.import_module(BUILTIN[name]).compute_score
    plain, tag = make_sample(response), make_sample(f"<think>{response}")
    after_tag = replace(plain, prompt=f"{plain.prompt}<|im_end|>\n<|im_start|>assistant\n<think>{space}")
    form = "overall" if name == "format" else "format"
    found, written = compute_score(after_tag, **kwargs), compute_score(tag, **kwargs)
    assert found[form] == written[form]
    assert found.get("accuracy") == compute_score(plain, **kwargs).get("accuracy")
    closed = replace(plain, prompt=f"{plain.prompt} <think>{space}</think>")
    assert compute_score(closed, **kwargs) == compute_score(plain, **kwargs)


def test_r1v_gives_a_thinking_models_response_its_full_score():
    sample = replace(
        make_sample("two and one\n</think>\n<answer>3</answer>"), prompt="<|im_start|>assistant\n<think>\n"
    )
    assert r1v.compute_score(sample) == {"overall": 1.0, "format": 1.0, "accuracy": 1.0}
    assert r1v.compute_score(replace(sample, prompt="<|im_start|>assistant\n"))["format"] == 0.0


@pytest.mark.parametrize(
    ("response", "tagged", "boxed"),
    [
        ("<think>a</think><answer>3</answer>", 1.0, 0.0),
        (" <think>a</think><answer>3</answer>", 0.0, 0.0),
        ("<think>a</think> \\boxed{3} indeed", 0.0, 1.0),
        ("\\boxed{3}", 0.0, 0.0),
    ],
)
def test_format_looks_at_the_form_alone(response, tagged, boxed):
    assert score("format", response)["overall"] == tagged
    assert score("format", response, form="boxed")["overall"] == boxed


@pytest.mark.parametrize(
    ("response", "penalty"),
    [
        ("", 0.0),
        ("one two", 0.0),
        ("one two three four", 0.0),
        ("one two three ONE two three", -0.25),  # three of four trigrams differ
        ("a a a a a", -2 / 3),
    ],
)
def test_repetition_counts_trigrams_of_words(response, penalty):
    assert score("repetition", response)["overall"] == pytest.approx(penalty)
    assert score("repetition", response, max_penalty=-0.5)["overall"] == pytest.approx(penalty / 2)


@pytest.mark.parametrize(
    ("name", "kwargs", "named"),
    [
        ("repetition", {"max_penalty": 0.5}, "max_penalty"),
        ("repetition", {"ngram_size": 0}, "ngram_size"),
        ("length", {"target_length": 20}, "target_length 20"),
        ("format", {"form": "xml"}, "no form 'xml'"),
        ("math", {"grader": "mathroler"}, "no grader 'mathroler', just mathruler and math_verify"),
        ("r1v", {"grader": "mathroler"}, "no grader 'mathroler', just mathruler and math_verify"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(name, kwargs, named):
    with pytest.raises(ValueError, match=named):
        score(name, "a b c", **kwargs)


@pytest.mark.parametrize(
    ("name", "scores"),
    [
        ("length", {0: 1.0, 10: 1.0, 15: 0.5, 20: 0.0, 30: 0.0}),
        ("overlong", {1: 0.0, 800: 0.0, 900: -0.5, 1000: -1.0, 1001: -1.0}),  # equation 13 of DAPO
    ],
)
def test_a_score_of_the_length_falls_between_its_two_numbers(name, scores):
    assert {length: score(name, "", length=length)["overall"] for length in scores} == scores


@pytest.mark.parametrize(
    ("given_answer", "truth", "equal"),
    [
        ("$\\frac12$", "\\frac{1}{2}", True),
        ("x = 12 cm", "12", True),
        ("1,234", "1234", True),
        ("the answer is $5$.", "5", True),
        ("0.5", "1/2", False),
        ("\\text{seven}", "seven", True),
    ],
)
def test_dapo_compares_minervas_normal_forms(given_answer, truth, equal):
    assert score("dapo", f"Answer: {given_answer}", truth)["accuracy"] == (1.0 if equal else -1.0)


def test_dapo_reads_the_last_answer_of_the_last_300_characters():
    assert score("dapo", "Answer: 2\nANSWER : 3")["accuracy"] == 1.0
    assert score("dapo", "Answer: 3" + " " * 300)["accuracy"] == -1.0

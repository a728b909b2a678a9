from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.answers import Answer
from rl_core.config.reward import RewardConfig
from rl_core.rewards.trial import GroundTruthTrial, try_on_ground_truth
from rl_core.types import Prompt
from tests.rl_core.builders import make_prompt
from tests.rl_core.rewards.samples import own


def prompts(*answers: Answer) -> list[Prompt]:
    return [replace(make_prompt(f"row-{i}"), answer=answer) for i, answer in enumerate(answers)]


def trial(
    function: str, *answers: Answer, template: str | None = None, accuracy_key: str = "accuracy", **kwargs
) -> GroundTruthTrial:
    config = RewardConfig(function=function, kwargs=kwargs, timeout_seconds=2.0)
    return try_on_ground_truth(config, prompts(*answers), target_template=template, accuracy_key=accuracy_key)


def test_a_good_reward_has_no_problems():
    result = trial("count", "1", "2")
    assert (result.problems, result.warnings) == ([], [])
    assert result.responses == ["<answer>1</answer>", "<answer>2</answer>"]
    assert [score.overall for score in result.scores] == [1.0, 1.0]


def test_a_ground_truth_that_the_reward_cannot_read_is_a_problem_of_its_row():
    (problem,) = trial("count", "1", "two").problems
    assert problem.startswith("reward 'count' on the ground truth of row row-1: ValueError: the ground truth 'two'")


def test_a_template_that_the_reward_does_not_read_is_a_warning():
    (warning,) = trial("count", *"12345", template="It is {{ answer }}.").warnings
    assert "calls the true answer wrong for 5 rows (row-0, row-1, row-2, ...) (of 5 tried)" in warning


def test_an_unknown_name_in_the_template_is_a_problem():
    (problem,) = trial("count", "4", template="{{ anwser }}").problems
    assert problem == "cold_start.target_template names the unknown variable anwser; there is answer, question"


def test_a_missing_accuracy_component_is_a_problem_that_names_the_others():
    (problem,) = trial("count", "1", accuracy_key="correct").problems
    assert problem.endswith(
        "its components (accuracy, format, overall) lack 'correct': name one of them as evaluation.accuracy_key"
    )


def test_a_missing_component_of_the_filter_is_a_problem_too():
    config = RewardConfig(function="count")
    named = {"target_template": None, "accuracy_key": "accuracy"}
    (problem,) = try_on_ground_truth(config, prompts("1"), filter_key="correct", **named).problems
    assert problem.endswith("lack 'correct': name one of them as algorithm.online_filtering.filter_key")
    assert try_on_ground_truth(config, prompts("1"), filter_key="format", **named).problems == []


def test_a_wrong_keyword_argument_and_a_missing_file_are_problems():
    assert "unexpected keyword argument 'wieght'" in trial("count", "1", wieght=1.0).problems[0]
    assert "there is no file" in trial("nowhere.py:score", "1").problems[0]


def test_the_example_file_for_users_works_on_the_bare_answer_form_of_its_docstring():
    example = Path(__file__).parents[3] / "configs" / "rewards" / "own.py"
    result = trial(f"{example}:score", "1", template="<answer>{{ answer }}</answer>", brevity_weight=0.2)
    assert (result.problems, result.warnings) == ([], [])
    assert result.scores[0].components["accuracy"] == 1.0
    assert result.scores[0].parsed == "1"


OWN_FORMS = r"""
import re
KIND = "{kind}"

def bare(response):
    return response

def boxed(response):
    found = re.findall(r"\\boxed\{{(.*)\}}", response)
    return found[-1] if found else None

def last_line(response):
    found = re.findall(r"(?i)Answer\s*:\s*([^\n]+)", response[-300:])
    return found[-1] if found else None

def strict(response):
    return re.fullmatch(r"<think>.+</think>\s*<answer>(.*)</answer>", response, re.DOTALL).group(1)

def score(sample):
    assert sample.response_length > 0
    right = float(globals()[KIND](sample.response) == sample.ground_truth_text)
    return {{"overall": right + 0.1 / sample.response_length, "accuracy": right}}
"""


def own_form(folder: Path, kind: str) -> str:
    return own(folder, OWN_FORMS.format(kind=kind))


@pytest.mark.parametrize("kind", ["bare", "boxed", "last_line"])
def test_a_reward_of_the_users_is_asked_in_the_form_that_it_reads(tmp_path, kind):
    result = trial(own_form(tmp_path, kind), "12", "x^{2}", "[3, 4]")
    assert (result.problems, result.warnings) == ([], [])
    assert [score.components["accuracy"] for score in result.scores] == [1.0] * 3


def test_a_reward_that_reads_no_usual_form_is_a_warning(tmp_path):
    never = own(tmp_path, "def score(sample): return {'overall': 0.0, 'accuracy': 0.0}\n")
    (warning,) = trial(never, "1", "2").warnings
    assert "wrong for 2 rows (row-0, row-1) (of 2 tried): no form of the true answer is right" in warning


def test_a_reward_that_fails_on_another_form_than_its_own_is_a_warning(tmp_path):
    result = trial(own_form(tmp_path, "strict"), "1", "2")
    assert not result.problems
    (warning,) = result.warnings
    assert "fails on the response '1' (AttributeError: 'NoneType' object has no attribute 'group'" in warning
    assert "return a score for it" in warning


def test_a_reward_that_hangs_is_not_asked_about_every_row(tmp_path):
    calls = tmp_path / "calls"
    text = f"def score(sample):\n    open({str(calls)!r}, 'a').write(sample.prompt_uid + '\\n')\n    time.sleep(600)\n"
    config = RewardConfig(function=own(tmp_path, f"import time\n{text}"), timeout_seconds=0.3, load_timeout_seconds=0.5)
    result = try_on_ground_truth(config, prompts(*"12345678"), target_template=None, accuracy_key="accuracy")
    assert set(calls.read_text().split()) == {"row-0"}
    assert len(result.problems) == 1, "the first call had more time, and the others tell the same"
    assert "on the ground truth of row row-0: no result of the first call within" in result.problems[0]


def test_rows_of_another_form_than_the_first_are_tried_in_all(tmp_path):
    twofold = own(
        tmp_path,
        "def score(sample):\n"
        "    form = '<answer>{}</answer>' if sample.ground_truth_text.isdecimal() else 'boxed{{{}}}'\n"
        "    right = form.format(sample.ground_truth_text) in sample.response\n"
        "    return {'overall': right, 'accuracy': right}\n",
    )
    result = trial(twofold, "1", "x", "2", "y")
    assert (result.problems, result.warnings) == ([], [])
    assert ["boxed" in response for response in result.responses] == [False, True, False, True]


def test_each_source_is_tried_with_its_own_reward():
    config = RewardConfig(
        mixture=({"function": "math"}, {"function": "length", "kwargs": {"target_length": 5, "max_length": 9}}),
        by_source={"clevr": {"function": "count"}},
    )
    rows = prompts("1/2", "7", "many")
    rows[1:] = [replace(row, data_source="clevr") for row in rows[1:]]
    result = try_on_ground_truth(config, rows, target_template=None, accuracy_key="accuracy")
    assert result.responses == ["<think></think>\\boxed{1/2}", "<answer>7</answer>", "<answer>many</answer>"]
    assert [score.error is None for score in result.scores] == [True, True, False]
    assert result.scores[0].components["length/overall"] == 0.0, "15 tokens, about"
    (problem,) = result.problems
    assert problem.startswith("reward 'count' on the ground truth of row row-2: ValueError: the ground truth 'many'")


def test_a_source_without_a_reward_is_a_problem():
    config = RewardConfig(by_source={"clevr": {"function": "count"}})
    (problem,) = try_on_ground_truth(config, prompts("1"), target_template=None, accuracy_key="accuracy").problems
    assert problem.endswith("no reward for data source 'test': name it in reward.by_source")


GSM8K = "3+2=<<3+2=5>>5.\n#### {}"


@pytest.mark.parametrize("truth", [GSM8K, "<answer> {} </answer>", "{}<|im_end|>"])
@pytest.mark.parametrize("name", ["math", "r1v"])
def test_a_built_in_reward_that_calls_no_short_answer_right_is_a_problem(truth, name):
    """The response that a person calls right, and not the text of the column, is tried."""
    (problem,) = trial(name, *(truth.format(number) for number in range(3))).problems
    assert "calls the true answer wrong for 3 rows (row-0, row-1, row-2) (of 3 tried): no form of the true" in problem
    assert "columns.answer_pattern" in problem


def test_a_reward_that_reads_the_answer_in_the_column_itself_has_no_problem(tmp_path):
    text = (
        "def score(sample):\n"
        "    right = float(sample.response.split()[-1:] == [sample.ground_truth_text.split('####')[-1].strip()])\n"
        "    return {'overall': right, 'accuracy': right}\n"
    )
    result = trial(own(tmp_path, text), GSM8K.format(5), GSM8K.format(6))
    assert (result.problems, result.warnings) == ([], [])
    assert trial("geoqa", "<answer> 5 </answer>", "<answer> 6 </answer>").warnings == [], "as published"


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (
            (" so it is the third of all the angles", "5"),
            "1 of 2 can hardly be given word for word: the answer of row row-0 is",
        ),
        (("<think>a</think>\n\n**5**", "<think>b</think>\n\n**6**"), "2 of 2 can hardly be given word for word"),
    ],
)
def test_answers_that_are_not_given_word_for_word_are_a_warning_of_a_reward_that_compares(answers, why):
    assert why in "\n".join(trial("math", *answers).warnings)


def test_a_mapping_is_no_answer_of_a_reward_that_compares():
    """Its JSON is right for itself, and for nothing that a model writes."""
    truths = [{"style": "rule", "ground_truth": str(number)} for number in range(3)]
    result = trial("math", *truths)
    (problem,) = result.problems
    assert "the answer of 3 rows (row-0, row-1, row-2) is a mapping" in problem
    assert problem.endswith("columns.answer_key: COLUMN.style or COLUMN.ground_truth")
    assert result.warnings == []


def test_a_reward_that_does_not_look_at_the_answer_is_a_warning(tmp_path):
    form = "def score(sample): return {'overall': float('boxed' in sample.response), 'accuracy': 1.0}\n"
    (warning,) = trial(own(tmp_path, form), "1", "2", "3").warnings
    assert "a wrong answer scores as high as a right one for 3 rows (row-0, row-1, row-2) (of 3 tried)" in warning
    assert "such as '<think>I think.</think>\\n\\\\boxed{2}' for '1'" in warning
    constant = "def score(sample): return {'overall': 1.0, 'accuracy': 1.0}\n"
    other, empty = trial(own(tmp_path, constant), "1", "2", "3").warnings
    assert "a wrong answer scores" in other and "an empty response scores as high as a right one for 3" in empty
    assert trial("format", "1", "2", accuracy_key="overall").warnings == [], "it judges no answer"


def test_a_wrong_answer_that_holds_the_true_one_is_named(tmp_path):
    text = (
        "def score(sample):\n"
        "    right = float(sample.ground_truth in sample.response)\n"
        "    return {'overall': right, 'accuracy': right}\n"
    )
    (warning,) = trial(own(tmp_path, text), "1", "12", "3").warnings
    assert "for row row-0 (of 3 tried), such as '12' for '1'" in warning


def test_rows_that_all_have_one_answer_show_nothing_about_the_reward():
    (warning,) = trial("count", "4", "4", "4").warnings
    assert "all 3 rows that reward 'count' was tried on have the answer '4'" in warning
    assert "cannot be told" in warning


def test_the_table_has_every_form_that_was_tried():
    table = {row.name: (row.right, row.tried, row.overall) for row in trial("math", "1", "2").table}
    assert table["as the reward reads it"] == (2, 2, 1.0)
    assert table["in \\boxed{}"] == (1, 1, 1.0)
    assert table["behind ####"] == (0, 1, 0.0)
    assert table["another row's answer"] == (0, 2, pytest.approx(0.1))
    assert table["an empty response"] == (0, 2, 0.0)
    assert len(table) == 9


def test_a_function_of_an_installed_package_is_a_users_function():
    result = trial("tests.rl_core.rewards.installed_reward:score", "1", "2")
    assert (result.problems, result.warnings) == ([], [])


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=5), st.sampled_from(["math", "r1v", "count", "choice", "dapo"]))
def test_a_built_in_judge_tells_right_from_wrong(numbers, name):
    kwargs = {"max_response_length": 99, "overlong_buffer_length": 9, "overlong_penalty_factor": 0.5}
    answers = ["ABCDEFGHIJ"[number] if name == "choice" else str(number) for number in numbers]
    result = trial(name, *answers, **(kwargs if name == "dapo" else {}))
    assert result.problems == []
    warnings = " ".join(result.warnings)
    assert "scores as high" not in warnings and "wrong for" not in warnings
    assert ("cannot be told" in warnings) == (len(set(answers)) == 1)


REFUSALS = [
    "HTTPError('HTTP Error 429: Too Many Requests')",
    "RateLimitError('Error code: 429 - rate limit reached')",
    "HTTPError('429 Client Error: Too Many Requests for url: https://judge')",
    "ClientResponseError(\"503, message='Service Unavailable'\")",
    "RuntimeError('the judge is overloaded')",
    "RuntimeError('HTTP 504')",
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_judge_that_is_busy_does_not_stop_the_run(tmp_path, refusal):
    name = refusal.partition("(")[0]
    kind = "" if name == "RuntimeError" else f"class {name}(Exception): ...\n"
    result = trial(own(tmp_path, f"{kind}def score(sample): raise {refusal}\n"), "1", "2")
    assert not result.problems
    (warning,) = result.warnings
    assert "could not be tried" in warning and "calls were refused by a server that is busy" in warning


@pytest.mark.parametrize("error", ["no number in '429'", "429.5 is too large", "row 4291", "a field is missing"])
def test_another_failure_is_not_taken_for_a_busy_judge(tmp_path, error):
    (problem,) = trial(own(tmp_path, f"def score(sample): raise ValueError({error!r})\n"), "1", "2").problems
    assert error in problem

"""Functions in TRL's and verl's forms are called as these call them; None means that a reward is not for a response."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.reward import RewardConfig, RewardTerm
from rl_core.evaluation.items import graded_item
from rl_core.evaluation.result import summarise
from rl_core.rewards.call_forms import trl_arguments, verl_arguments
from rl_core.rewards.messages import CallResult
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.registry import call_problems, wanted_columns
from rl_core.rewards.routing import Route, Term, combine
from rl_core.rewards.trial import try_on_ground_truth
from rl_core.types import Score
from rl_core.unscored import NOT_FOR_SAMPLE
from tests.rl_core.builders import make_prompt
from tests.rl_core.rewards.samples import make_sample, own

COLUMNS = {"level": 3, "solution": "why"}
SAMPLES = [replace(make_sample(text, index=place), extra=COLUMNS) for place, text in enumerate(("3", "4", "no"))]


def scores_of(folder: Path, text: str, **config: Any) -> list[Score]:
    with RewardPool(RewardConfig(function=own(folder, text), workers=1, **config)) as pool:
        return pool.score_all(SAMPLES)


def overalls(scores: list[Score]) -> list[float | None]:
    assert not any(score.has_failed for score in scores), [score.error for score in scores]
    return [score.components.get("overall") for score in scores]


TRL = {
    "columns by name": "def score(completions, answer, **kwargs):\n"
    "    return [float(c == a) for c, a in zip(completions, answer)]",
    "all as keywords": "def score(prompts, completions, **kwargs):\n"
    "    assert prompts == ['How many?'] * 3 and kwargs['level'] == [3] * 3\n"
    "    return [c == a for c, a in zip(completions, kwargs['answer'])]",
    "without **kwargs": "def score(completions, answer, level, completion_ids):\n"
    "    assert level == [3] * 3 and completion_ids == [[]] * 3\n"
    "    return [float(c == a) for c, a in zip(completions, answer)]",
    "messages": "def score(prompts, completions, answer, **kwargs):\n"
    "    assert prompts[0][-1]['content'] == 'How many?' and completions[0][0]['role'] == 'assistant'\n"
    "    return [float(c[0]['content'] == a) for c, a in zip(completions, answer)]",
    "keywords only": "def score(*, completions, answer, **_):\n"
    "    return [float(c == a) for c, a in zip(completions, answer)]",
    "async": "async def score(completions, answer, **kwargs):\n"
    "    return [float(c == a) for c, a in zip(completions, answer)]",
    "an option of the trainer's": "def score(completions, answer, log_extra=None, trainer_state=None, **kwargs):\n"
    "    assert log_extra is None\n    return [float(c == a) for c, a in zip(completions, answer)]",
}
VERL = {
    "a number": "def score(data_source, solution_str, ground_truth, extra_info=None):\n"
    "    assert data_source == 'test' and extra_info['level'] == 3\n    return float(solution_str == ground_truth)",
    "without extra_info": "def score(data_source, solution_str, ground_truth):\n"
    "    return solution_str == ground_truth",
    "with **kwargs": "def score(solution_str, ground_truth, **kwargs):\n"
    "    return solution_str == ground_truth if set(kwargs) == {'data_source', 'extra_info'} else None",
    "async": "async def score(data_source, solution_str, ground_truth, extra_info=None):\n"
    "    return {'score': float(solution_str == ground_truth), 'pred': solution_str}",
    "batch": "def score(data_sources, solution_strs, ground_truths, extra_infos):\n"
    "    return [{'score': float(s == g), 'acc': s == g} for s, g in zip(solution_strs, ground_truths)]",
}


@pytest.mark.parametrize("text", [*TRL.values(), *VERL.values()], ids=[*TRL, *(f"verl: {name}" for name in VERL)])
def test_a_function_of_another_library_is_called_as_it_is(tmp_path, text):
    function = own(tmp_path, text)
    assert [*call_problems(RewardTerm(function=function))] == []
    assert overalls(scores_of(tmp_path, text)) == [1.0, 0.0, 0.0]


def test_the_score_of_a_dict_is_overall_and_its_other_numbers_are_components(tmp_path):
    text = "def score(data_source, solution_str, ground_truth, extra_info=None):\n"
    scores = scores_of(tmp_path, f"{text}    return {{'score': 0.5, 'acc': True, 'pred': 'x', 'overall': 9}}")
    assert scores[0].components == {"overall": 0.5, "acc": 1.0}
    (first, *_) = scores_of(tmp_path, f"{text}    return {{'acc': 1.0}}")
    assert "returned a dict without `score`" in (first.error or "")


def test_the_columns_of_verls_files_reach_its_functions():
    extra = {"data_source": "openai/gsm8k", "extra_info": {"index": 7}, "ability": "math"}
    sample = replace(SAMPLES[0], extra=extra)
    found = verl_arguments(sample, accepted=None)
    assert (found["data_source"], found["extra_info"]) == ("openai/gsm8k", {"index": 7})


def test_an_imported_function_is_called_as_its_reward_type_says(tmp_path):
    (tmp_path / "other.py").write_text(
        "def score(completions, **kwargs):\n    return [float(len(c)) for c in completions]\n"
    )
    assert overalls(scores_of(tmp_path, "from other import score\n", reward_type="trl")) == [1.0, 1.0, 2.0]


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.integers()), min_size=1),
    st.none() | st.frozensets(st.sampled_from(["completions", "a", "b", "truth"])),
)
def test_every_list_has_an_item_for_each_sample_and_no_other_name_is_given(rows, accepted):
    samples = [replace(SAMPLES[0], extra=row) for row in rows]
    found = trl_arguments(samples, answer_names=["truth"], reads_messages=False, accepted=accepted)
    assert {len(values) for values in found.values()} <= {len(rows)}
    assert accepted is None or found.keys() <= accepted
    for name in found.keys() & set("abc"):
        assert found[name] == [row.get(name) for row in rows]


@pytest.mark.parametrize("name", ["trainer_state", "log_extra", "log_metric", "environments"])
@pytest.mark.parametrize(
    "form", ["def score(completions, {}, **kwargs): ...", "def score(completions, **kwargs): kwargs['{}']"]
)
def test_arguments_that_only_the_trainer_of_trl_has_are_refused_by_name(tmp_path, form, name):
    ((where, what),) = [
        (one.where, one.what) for one in call_problems(RewardTerm(function=own(tmp_path, form.format(name))))
    ]
    assert (where, what) == ("function", f"`score` takes {name} from TRL's trainer, which is not here")


def test_the_columns_that_a_function_cannot_do_without_are_known(tmp_path):
    function = own(tmp_path, "def score(prompts, completions, solution, level, weight, seen=None, **kwargs): ...")
    assert wanted_columns(RewardTerm(function=function, kwargs={"weight": 1.0})) == ["solution", "level"]


@pytest.mark.parametrize(
    ("function", "kwargs", "expected"),
    [
        ("math", {"format_wieght": 0.5}, ["takes no format_wieght; did you mean `format_weight`?"]),
        ("dapo", {"max_response_length": 9, "overlong_buffer_length": 3}, ["wants overlong_penalty_factor"]),
        (
            "length",
            {"target_lenght": 3, "max_length": 9},
            ["wants target_length", "takes no target_lenght; did you mean"],
        ),
        ("overlong", {"max_response_length": 9, "overlong_buffer_length": 3}, []),
        ("def score(sample, bonus=0.1): ...", {"bnous": 1}, ["takes no bnous; did you mean `bonus`?"]),
        ("async def score(sample, *, url): ...", {}, ["wants url"]),
        ("REWARD_TYPE = 'batch'\ndef score(inputs, weight=1): ...", {"wieght": 2}, ["did you mean `weight`?"]),
        ("def score(solution_str, ground_truth, judge): ...", {}, ["wants judge"]),
        ("def score(completions, answer, bonus=1): ...", {"bonsu": 2}, ["takes no bonsu; did you mean `bonus`?"]),
        ("def score(sample, **kwargs): ...", {"anything": 1}, []),
        ("@wrapped\ndef score(sample): ...", {"anything": 1}, []),
    ],
)
def test_wrong_and_missing_arguments_are_named_before_any_call(tmp_path, function, kwargs, expected):
    named = own(tmp_path, function) if "def" in function else function
    found = [*call_problems(RewardTerm(function=named, kwargs=kwargs))]
    assert [one.where for one in found] == ["kwargs"] * len(expected)
    assert all(words in one.what for words, one in zip(expected, found, strict=True)), found


# None


NOT = CallResult({}, None, NOT_FOR_SAMPLE)


def route(*weights: float) -> Route:
    terms = [Term(function_index=place, name="ab"[place], weight=weight) for place, weight in enumerate(weights)]
    return Route(terms=terms, is_mixture=len(weights) > 1, reader=None)


def test_in_a_mixture_a_part_that_is_not_for_a_response_counts_nothing():
    right = CallResult({"overall": 0.5, "accuracy": 1.0}, None, None)
    score = combine(route(1.0, 2.0), [NOT, right])
    assert (score.components, score.skipped) == ({"overall": 1.0, "b/overall": 0.5, "b/accuracy": 1.0}, ("a",))
    assert combine(route(1.0, 2.0), [NOT, NOT]).error == NOT_FOR_SAMPLE
    failed = combine(route(1.0, 2.0), [NOT, CallResult({}, None, "why")])
    assert (failed.error, failed.has_failed) == ("b: why", True)


@pytest.mark.parametrize(
    "text",
    [
        "def score(completions, **kwargs):\n    return [None if c == 'no' else float(c) for c in completions]",
        "def score(sample):\n    return None if sample.response == 'no' else float(sample.response)",
        "REWARD_NAME = 'x'\ndef score(inputs):\n"
        "    return [None if i['response'] == 'no' else float(i['response']) for i in inputs]",
        "def score(data_source, solution_str, ground_truth, extra_info):\n"
        "    return {'score': None if solution_str == 'no' else float(solution_str)}",
    ],
)
def test_none_of_any_form_leaves_the_response_out_and_is_no_failure(tmp_path, text):
    scores = scores_of(tmp_path, text)
    assert overalls(scores) == [3.0, 4.0, None]
    assert (scores[2].error, scores[2].has_failed) == (NOT_FOR_SAMPLE, False)


def test_an_evaluation_leaves_out_what_the_judging_part_is_not_for():
    graded = [
        graded_item(
            make_prompt(f"row-{place}"),
            "x",
            score,
            mode="greedy",
            sample_index=0,
            accuracy_key="accuracy",
            categories=(),
            has_parser=False,
        )
        for place, score in enumerate(
            [Score(components={"overall": 1.0, "accuracy": 1.0}), Score(components={"overall": 0.1}, skipped=("a",))]
        )
    ]
    assert [item.is_right for item in graded] == [True, None]
    result = summarise(graded)
    assert (result.n, result.accuracy, result.failed_rewards) == (1, 1.0, 1)


def trial(folder: Path, text: str, *answers: str):
    prompts = [
        replace(make_prompt(f"row-{i}"), answer=answer, extra={"kind": "odd" if i % 2 else "even"})
        for i, answer in enumerate(answers)
    ]
    config = RewardConfig(function=own(folder, text))
    return try_on_ground_truth(config, prompts, target_template=None, accuracy_key="overall")


def test_a_reward_for_some_rows_only_is_tried_on_these(tmp_path):
    odd = (
        "def score(completions, answer, kind, **kwargs):\n"
        "    rows = zip(completions, answer, kind)\n"
        "    return [float(f'#### {a}' in c) if k == 'odd' else None for c, a, k in rows]\n"
    )
    result = trial(tmp_path, odd, "1", "2", "3", "4")
    assert (result.problems, result.warnings) == ([], [])
    assert [score.components for score in result.scores] == [{}, {"overall": 1.0}] * 2


def test_a_missing_return_is_named(tmp_path):
    (problem,) = trial(tmp_path, "def score(sample):\n    sample.response == sample.ground_truth\n", "1", "2").problems
    assert "returned None for every response to the 2 rows that were tried" in problem
    half = "def score(sample):\n    if sample.response == sample.ground_truth:\n        return 1.0\n"
    result = trial(tmp_path, half, "1", "2")
    assert not result.problems
    (warning,) = result.warnings
    assert "returned None for the response" in warning and "a wrong one may cost nothing" in warning

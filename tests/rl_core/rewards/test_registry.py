import pickle
import sys
from pathlib import Path

import pytest

from rl_core.config.reward import RewardConfig
from rl_core.rewards.registry import BUILTIN, resolve_rewards
from tests.rl_core.rewards.samples import own


def resolve(function: str, **kwargs):
    (spec,) = resolve_rewards(RewardConfig(function=function, kwargs=kwargs)).specs
    return spec


@pytest.fixture
def reward_file(tmp_path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text("import sys\nsys.modules['imported_by_accident'] = sys\ndef score(sample): return 1.0\n")
    return path


@pytest.mark.parametrize("name", BUILTIN)
def test_every_builtin_resolves_and_those_that_judge_an_answer_parse_it(name):
    spec = resolve(name, format_weight=0.2)
    judges = name not in ("format", "length", "overlong", "repetition")
    assert (spec.source, spec.function, spec.has_parser) == (BUILTIN[name], "compute_score", judges)
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_a_function_of_a_file_is_found_without_importing_it(reward_file):
    spec = resolve(f"{reward_file}:score")
    assert (spec.source, spec.function, spec.has_parser) == (reward_file, "score", False)
    assert "imported_by_accident" not in sys.modules


@pytest.mark.parametrize(
    ("function", "named"),
    [
        ("{folder}/mine.py", "must read path/to/file.py:function"),
        ("{folder}/missing.py:score", "there is no file {folder}/missing.py"),
        ("{folder}/mine.py:scroe", "defines no `scroe`; did you mean `score`?"),
    ],
)
def test_a_missing_reward_function_is_named(reward_file, function, named):
    folder = reward_file.parent
    with pytest.raises(ValueError, match=named.format(folder=folder)):
        resolve(function.format(folder=folder))


@pytest.mark.parametrize(
    ("head", "style"),
    [
        ("", "sample"),
        ("REWARD_TYPE = 'batch'", "batch"),
        ("REWARD_TYPE: str = 'sequential'", "sequential"),
        ("REWARD_NAME = 'mine'", "batch"),  # EasyR1's default
        ("if True:\n    REWARD_TYPE = 'sequential'", "sequential"),
    ],
)
def test_a_file_of_easyr1s_is_known_by_its_constants(tmp_path, head, style):
    spec = resolve(own(tmp_path, f"{head}\ndef score(x): ...\ndef parse(x): ...\n"))
    assert (spec.style, spec.has_parser) == (style, style == "sample")


@pytest.mark.parametrize("declared", ["'both'", "some_name", "3"])
def test_a_reward_type_that_is_none_is_named(tmp_path, declared):
    function = own(tmp_path, f"REWARD_TYPE = {declared}\ndef score(x): ...\n")
    with pytest.raises(ValueError, match="its REWARD_TYPE must be the text `batch` or `sequential`"):
        resolve(function)
    (spec,) = resolve_rewards(RewardConfig(function=function, reward_type="batch")).specs
    assert spec.style == "batch"


def test_the_grader_goes_to_those_who_take_one():
    config = RewardConfig(mixture=({"function": "math"}, {"function": "count"}), grader="math_verify")
    assert [spec.kwargs for spec in resolve_rewards(config).specs] == [{"grader": "math_verify"}, {}]


def test_a_function_that_several_sources_share_is_loaded_once():
    config = RewardConfig(
        function="math",
        by_source={"a": {"function": "math"}, "b": {"function": "math", "kwargs": {"format_weight": 0.5}}},
    )
    routing = resolve_rewards(config)
    assert [spec.kwargs for spec in routing.specs] == [{}, {"format_weight": 0.5}]
    assert [routing.route_of(source).terms[0].function_index for source in ("a", "b", "c")] == [0, 1, 0]


def test_arguments_that_are_equal_and_of_another_type_are_others():
    config = RewardConfig(
        mixture=tuple({"function": "math", "name": f"{value!r}", "kwargs": {"x": value}} for value in (1, True, 1.0))
    )
    assert [repr(spec.kwargs["x"]) for spec in resolve_rewards(config).specs] == ["1", "True", "1.0"]


def test_every_problem_is_named_at_once():
    config = RewardConfig(function="gone.py:f", by_source={"a": {"function": "nowhere.py:f"}})
    with pytest.raises(ValueError) as caught:
        resolve_rewards(config)
    first, second = str(caught.value).splitlines()
    assert first.startswith("reward.function 'gone.py:f': there is no file")
    assert second.startswith("reward.function 'nowhere.py:f': there is no file")

import pickle
import sys
from pathlib import Path

import pytest

from rl_core.config.reward import RewardConfig
from rl_core.rewards.registry import BUILTIN, resolve_rewards


def resolve(function: str, **kwargs):
    (spec,) = resolve_rewards(RewardConfig(function=function, kwargs=kwargs)).specs
    return spec


@pytest.fixture
def reward_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(
        "import sys\nsys.modules['imported_by_accident'] = sys\n"
        "def score(sample): return 1.0\n"
        "try:\n    from fast import other\nexcept ImportError:\n    other = score\n"
        "if True:\n    named = lambda sample: 1.0\n"
    )
    return path


@pytest.mark.parametrize("name", BUILTIN)
def test_every_builtin_resolves_and_those_that_judge_an_answer_parse_it(name: str) -> None:
    spec = resolve(name, format_weight=0.2)
    judges = name not in ("format", "length", "overlong", "repetition")
    assert (spec.source, spec.function, spec.has_parser) == (BUILTIN[name], "compute_score", judges)
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize("function", ["score", "other", "named"])
def test_a_function_of_a_file_is_found_without_importing_it(reward_file: Path, function: str) -> None:
    spec = resolve(f"{reward_file}:{function}")
    assert (spec.source, spec.function, spec.has_parser) == (reward_file, function, False)
    assert "imported_by_accident" not in sys.modules


def test_a_star_import_may_define_anything(tmp_path: Path) -> None:
    path = tmp_path / "stars.py"
    path.write_text("from somewhere import *\n")
    assert resolve(f"{path}:score").function == "score"


def test_a_relative_path_starts_from_the_working_directory(reward_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(reward_file.parent)
    assert resolve("mine.py:score").source == reward_file


@pytest.mark.parametrize(
    ("function", "named"),
    [
        ("cuont", "no built-in reward; did you mean `count`?"),
        ("zzz", r"no built-in reward \(there is choice, count, dapo,"),
        ("{folder}/mine.py", "must read path/to/file.py:function"),
        ("{folder}/mine.py:", "must read path/to/file.py:function"),
        ("{folder}/mine.txt:score", "must read path/to/file.py:function"),
        (":score", "must read path/to/file.py:function"),
        ("{folder}/missing.py:score", "there is no file {folder}/missing.py"),
        ("{folder}/mine.py:scroe", "defines no `scroe`; did you mean `score`?"),
        ("{folder}/broken.py:score", "broken.py is no Python: line 2"),
        ("{folder}/empty.py:score", "defines no `score`$"),
    ],
)
def test_what_is_missing_is_named(reward_file: Path, function: str, named: str) -> None:
    folder = reward_file.parent
    (folder / "broken.py").write_text("x = 1\ndef score(:\n")
    (folder / "empty.py").write_text("")
    with pytest.raises(ValueError, match=named.format(folder=folder)):
        resolve(function.format(folder=folder))

"""Templates, reward functions and protocols that cannot work are named with their key, before anything starts."""

from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from tasks.planning.text_problems import text_problems

ROOT = Path(__file__).parents[3]
LOOPS = "{% for a in range(9999) %}" * 4 + "{% endfor %}" * 4
PUBLISHED = {
    "protocol": "geo3k-easyr1@1",
    "train_rows": 1,
    "steps_per_epoch": 1,
    "total_steps": 1,
    "source": "a table",
    "conditions": "none",
}


@pytest.fixture(autouse=True)
def _at_the_repository_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def small(*overrides: str) -> RunConfig:
    return load_config(Path("tests/e2e/configs/small.yaml"), overrides)


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_config_has_none(path: Path) -> None:
    assert text_problems(load_config(path)) == []


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("data.prompt_template", "{{ contnt }}", "names the unknown variable contnt"),
        ("data.prompt_template", "no question", "does not show the question"),
        ("data.prompt_template", "{% include 'own.jinja' %}", "uses another template in line 1"),
        ("data.prompt_template", LOOPS + "{{ content }}", "takes more than 2 seconds"),
        ("data.override_chat_template", "{{ messages", "is not valid Jinja, line 1"),
        ("data.override_chat_template", LOOPS, "takes more than 2 seconds"),
    ],
)
def test_a_template_in_a_file_is_named_with_its_key(tmp_path: Path, key: str, text: str, words: str) -> None:
    path = tmp_path / "own.jinja"
    path.write_text(text)
    (problem,) = text_problems(small(f"{key}={path}"))
    assert problem.where == key and problem.fatal
    assert words in problem.what and str(path) in problem.fix


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ content }}", "the unknown variable content"),
        ("{{ answer", "is not valid Jinja"),
        (LOOPS, "takes more than"),
    ],
)
def test_the_template_of_targets_is_named_with_its_own_key(text: str, words: str) -> None:
    (problem,) = text_problems(small(f"cold_start.target_template='{text}'"))
    assert problem.where == "cold_start.target_template" and words in problem.what


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def score(sample): return 1.0", ""),
        ("def scores(sample): return 1.0", "defines no `score`; did you mean `scores`?"),
        ("def score(sample: return 1.0", "no Python"),
        ("REWARD_TYPE = 'many'\ndef score(sample): return 1.0", "REWARD_TYPE"),
    ],
)
@pytest.mark.parametrize("key", ["reward", "reward.by_source.counting"])
def test_a_reward_function_is_read_and_not_run(tmp_path: Path, code: str, words: str, key: str) -> None:
    path, ran = tmp_path / "own.py", tmp_path / "ran"
    path.write_text(f"open({str(ran)!r}, 'w')\n{code}\n")
    problems = text_problems(small(f"{key}={{function: '{path}:score'}}"))
    assert [problem.where for problem in problems] == ([f"{key}.function"] if words else [])
    assert words in "".join(problem.what for problem in problems)
    assert not ran.exists()


def test_a_protocol_that_there_is_not_is_named() -> None:
    assert text_problems(small(f"published={PUBLISHED}")) == []
    (problem,) = text_problems(small(f"published={PUBLISHED | {'protocol': 'geo3k-easyr1@9'}}"))
    assert problem.where == "published.protocol" and "did you mean geo3k-easyr1@1?" in problem.what

"""What texts, machine, storage and prepared rows show is named with its key, before anything starts."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.data.manifest import DataManifest, LengthSummary, SplitSummary
from rl_core.progress import SilentProgress
from rl_core.run_directory import RunDirectory
from tasks.cache.named_files import located_config
from tasks.planning.problems import (
    disk_problems,
    glance_at,
    prepared_column_problems,
    prepared_problems,
    source_problems,
    static_problems,
    text_problems,
)
from tasks.preparation import prepare_run

pytestmark = pytest.mark.usefixtures("at_the_root")
ROOT = Path(__file__).parents[3]
PUBLISHED = {
    "protocol": "geo3k-easyr1@1",
    "train_rows": 1,
    "steps_per_epoch": 1,
    "total_steps": 1,
    "source": "a table",
    "conditions": "none",
}


def small(*overrides: str) -> RunConfig:
    return load_config(Path("tests/e2e/configs/small.yaml"), overrides)


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_config_has_none(path: Path) -> None:
    assert text_problems(located_config(load_config(path))) == []


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("data.prompt_template", "{{ contnt }}", "does not show the question: write {{ content }}"),
        ("data.override_chat_template", "{{ messages", "is not valid Jinja, line 1"),
    ],
)
def test_a_template_in_a_file_is_named_with_its_key(tmp_path: Path, key: str, text: str, words: str) -> None:
    path = tmp_path / "own.jinja"
    path.write_text(text)
    (problem,) = text_problems(small(f"{key}={path}"))
    assert problem.where == key and problem.fatal
    assert words in problem.what and str(path) in problem.fix


def test_a_column_that_the_template_shows_and_a_source_lacks_is_named(tmp_path: Path) -> None:
    template = tmp_path / "own.jinja"
    template.write_text("{{ content }} {{ hints }} {{ options['A'] }} {{ row }}")
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"problem": "?", "answer": "A", "hint": "cat", "choices": ["cat", "dog"]}) + "\n")
    source = f"{{type: local, path: {rows}, columns: {{options_key: choices}}}}"
    sources = [f"data.train={source}", f"data.validation={source}", "cold_start.source=null"]
    config = small(f"data.prompt_template={template}", *sources)
    problems = source_problems(config, glance_at(config))
    assert [problem.what.partition(";")[0] for problem in problems] == [
        f"it shows 'hints', and the rows of data.{split} have no such column" for split in ("train", "validation")
    ]
    assert all("did you mean 'hint'?" in problem.what for problem in problems)
    template.write_text("{{ content }} {{ hint }} {{ options['A'] }}")
    assert source_problems(config, glance_at(config)) == []


def test_a_column_that_a_reward_in_trls_form_takes_and_a_source_lacks_is_named(tmp_path: Path) -> None:
    rows, code = tmp_path / "rows.jsonl", tmp_path / "own.py"
    rows.write_text(json.dumps({"problem": "?", "right": "A", "hint": "cat"}) + "\n")
    source = f"{{type: local, path: {rows}, columns: {{answer_key: right}}}}"
    sources = [f"data.train={source}", f"data.validation={source}", "cold_start.source=null"]
    config = small(f"reward={{function: '{code}:score'}}", *sources)
    code.write_text("def score(completions, hints, right, **kwargs): ...\n")
    problems = source_problems(config, glance_at(config))
    assert [(problem.where, problem.what) for problem in problems] == [
        ("reward.function", f"the function takes hints, and the rows of data.{split} have no such column; {meant}")
        for split, meant in (("train", "did you mean 'hint'?"), ("validation", "did you mean 'hint'?"))
    ]
    code.write_text("def score(completions, right, hint, seen=None, **kwargs): ...\n")
    assert source_problems(config, glance_at(config)) == []


@pytest.mark.parametrize("reward", ["{function: math, kwargs: {format_wieght: 1}}", "{mixture: [{function: dapo}]}"])
@pytest.mark.parametrize("key", ["reward", "reward.by_source.counting"])
def test_the_arguments_of_a_built_in_reward_are_checked(key: str, reward: str) -> None:
    place = "kwargs" if "math" in reward else "mixture.0.kwargs"
    override = f"{key}={reward}" if key == "reward" else f"reward={{function: math, by_source: {{counting: {reward}}}}}"
    (problem,) = text_problems(small(override))
    assert (problem.where, problem.fatal) == (f"{key}.{place}", True)
    assert "format_weight" in problem.what or "wants max_response_length" in problem.what


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ content }}", "the unknown variable content"),
        ("{{ answer", "is not valid Jinja"),
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
    assert problem.where == "published.protocol" and "did you mean `geo3k-easyr1@1`?" in problem.what


def manifest_of(**rows: int) -> DataManifest:
    lengths = LengthSummary.of([9])
    train = SplitSummary(
        source="rows",
        read=sum(rows.values()),
        rows=sum(rows.values()),
        rejected=0,
        overlong=0,
        images=0,
        data_sources=rows,
        prompt_tokens=lengths,
    )
    return DataManifest(fingerprint="", splits={"train": train}, images=0, files={})


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ("null", ""),
        ("{scenes: 1, sums: 3}", ""),
        ("{scenes: 1}", "['sums'] have no weight"),
        ("{scenes: 1, sums: 1, more: 1}", "['more'] are not among the rows"),
        ("{scenes: 1000, sums: 1}", "asks 'scenes' for 4 of the 4 rows of a batch, and it has 3"),
    ],
)
def test_rows_that_were_prepared_for_other_weights_are_no_surprise_in_training(weights: str, words: str) -> None:
    """How rows are drawn is no part of their preparation, so another run's may stand for them."""
    problems = prepared_problems(small(f"data.source_weights={weights}"), manifest_of(scenes=3, sums=5))
    assert words in "\n".join(map(str, problems))
    assert [problem.where for problem in problems] == (["data.source_weights"] if words else [])


def test_too_few_prepared_rows_are_named_whatever_the_weights() -> None:
    (problem,) = prepared_problems(small("data.source_weights={scenes: 1}"), manifest_of(scenes=3))
    assert problem.where == "data.rollout_batch_size"


def test_a_category_that_no_prepared_row_has_is_named(tmp_path: Path) -> None:
    rows = [{"problem": f"What is {row}?", "answer": row, "kind": "sum"} for row in range(8)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    held_out = f"data.validation={{type: local, path: {path}}}"
    config = small(held_out, "evaluation.categories=[kind, kinb]")
    run = RunDirectory(tmp_path / "run")
    prepare_run(config, run, progress=SilentProgress())
    (problem,) = prepared_column_problems(config, run.data)
    assert problem.where == "evaluation.categories" and "'kinb' is no further column" in problem.what
    assert prepared_column_problems(small(held_out, "evaluation.categories=[kind]"), run.data) == []


def test_an_address_that_no_package_knows_is_a_problem_and_an_absent_storage_is_none(tmp_path: Path) -> None:
    def found(address: str) -> list[str]:
        problems = static_problems(small(f"storage.address={address}"), RunDirectory(tmp_path / "run"), gpu=None)
        return [str(problem) for problem in problems if problem.where == "storage.address"]

    (problem,) = found("nonsense://bucket/runs")
    assert "nonsense" in problem and "SIGHTLINE_STORAGE" in problem
    assert found("s3://no-such-bucket/runs") == found(f"{tmp_path}/not-mounted") == []


def test_a_disk_that_is_short_is_named_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the nearest folder that is there; the run's is not made yet."""
    config, run = load_config(ROOT / "configs" / "quickstart.yaml"), RunDirectory(tmp_path / "runs" / "not-made-yet")
    assert disk_problems(config, run) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=(path == tmp_path) * 2**20))
    (problem,) = disk_problems(config, run)
    assert problem.where == f"disk of {run.root}"
    assert re.fullmatch(r"0\.\d\d GiB are needed and 0\.00 GiB are free", problem.what)

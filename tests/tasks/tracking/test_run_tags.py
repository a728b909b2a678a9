"""Tags by which runs are found, grouped and compared."""

from pathlib import Path

import pytest

from rl_core.run_directory import RunDirectory
from tasks.cache.software import code_version
from tasks.results.run_facts import algorithm_name
from tasks.tracking.run_tracking import code_tags, model_name, run_tags
from tests.tasks.finished_run import config_with, finish_run

NOWHERE = RunDirectory(Path("nowhere"))


def test_another_seed_is_another_config_of_one_recipe() -> None:
    one, other = (run_tags(config_with(f"seed={seed}"), NOWHERE) for seed in (1, 2))
    differing = {name for name in one if one[name] != other[name]}
    assert differing == {"seed", "config"}


@pytest.mark.parametrize(
    ("override", "differing"),
    [
        ("algorithm.advantage.type=rloo", {"config", "recipe", "algorithm"}),
        ("actor.optim.lr=1e-4", {"config", "recipe"}),
        ("evaluation.limit=5", {"config", "recipe", "protocol"}),
        ("evaluation.categories=[level]", {"config", "recipe"}),
        ("rollout.max_response_length=16", {"config", "recipe", "protocol"}),
        ("tracking.gallery_items=3", set()),
        ("merge.push=me/model", set()),
        ("model.source.family=qwen3_vl", {"config", "recipe", "model"}),
    ],
)
def test_a_change_shows_in_the_tags_that_it_concerns(override: str, differing: set[str]) -> None:
    one, other = run_tags(config_with(), NOWHERE), run_tags(config_with(override), NOWHERE)
    assert {name for name in one if one[name] != other[name]} == differing


def test_the_config_is_the_one_in_the_runs_name_and_the_data_are_named_when_they_are_there(tmp_path: Path) -> None:
    run = finish_run(tmp_path)
    tags = run_tags(config_with(), run)
    assert run.name == f"counting-{tags['config']}"
    assert tags["dataset"] == "f" * 16
    assert "dataset" not in run_tags(config_with(), NOWHERE)


def test_names_show_what_differs_from_the_default() -> None:
    assert model_name(config_with("model.source={type: pretrained, path: Qwen/Qwen2.5-VL-3B-Instruct}").model) == (
        "Qwen2.5-VL-3B-Instruct"
    )
    dapo = config_with("algorithm.online_filtering={}", "algorithm.loss.type=gspo", "algorithm.kl={coef: 0.01}")
    assert algorithm_name(dapo.algorithm) == "grpo-gspo-filtered-kl"


def test_the_commit_stands_where_mlflow_looks_for_it() -> None:
    tags, version = code_tags(), code_version()
    assert tags["code"] == f"{version}"
    assert tags.get("mlflow.source.git.commit") == version.commit

"""Baselines as configs, and runs of them against the published numbers."""

from pathlib import Path

import pytest

from rl_core.config.loading import dump_config, load_config
from rl_core.config.run import RunConfig
from rl_core.evaluation.result import write_evaluation
from rl_core.run_directory import RunDirectory
from tasks.cache.named_files import NamedFiles
from tasks.cache.stages import run_name, stage_digests
from tasks.reproduction.published_result import dry_run_problems, judge_runs, obstacles, read_measured
from tasks.results.run_facts import RunFacts
from tests.rl_core.evaluation.builders import make_items
from tests.tasks.finished_run import finish_stage

pytestmark = pytest.mark.usefixtures("at_the_root")
NAME = "configs/baselines/qwen2_5_vl_7b_geo3k_grpo.yaml"


def baseline(*overrides: str, name: str = NAME) -> RunConfig:
    return load_config(Path(name), overrides)


def test_what_is_published_is_no_part_of_a_run() -> None:
    config = baseline()
    other = baseline("published.accuracy=0.1")
    assert run_name(config) == run_name(other)

    def of_name(source) -> str:
        return source.name

    assert stage_digests(config, NamedFiles(of_name)) == stage_digests(other, NamedFiles(of_name))


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("data.rollout_batch_size=256", "published.steps_per_epoch: the run would take 8, the reference takes 4"),
        ("trainer.total_epochs=3", "published.total_steps: the run would take 12, the reference takes 60"),
        ("actor.global_batch_size=100", "a step of 512 prompts does not split"),
        ("data.prompt_template=nowhere.jinja", "there is no file nowhere.jinja"),
    ],
)
def test_a_dry_run_names_what_is_not_the_references(override: str, named: str) -> None:
    assert any(named in str(problem) for problem in dry_run_problems(baseline(override)))


def test_a_config_that_reproduces_nothing_says_so() -> None:
    with pytest.raises(ValueError, match="quickstart reproduces nothing"):
        dry_run_problems(baseline(name="configs/quickstart.yaml"))


def test_seed_and_memory_may_change_and_nothing_that_moves_the_number() -> None:
    harmless = ["seed=3", "rollout.gpu_memory_utilization=0.5", "actor.micro_batch_size_per_device_for_update=1"]
    assert obstacles(baseline(*harmless), baseline()) == []
    changed = obstacles(baseline("actor.optim.lr=1e-5", "algorithm.kl=null"), baseline())
    assert changed[0] == "actor.optim.lr is 1e-05, the baseline's 1e-06"
    assert "algorithm.kl.coef is None, the baseline's 0.01" in changed


def finished_run(folder: Path, config: RunConfig, right: int) -> RunDirectory:
    run = RunDirectory(folder / "run")
    run.root.mkdir()
    run.config.write_text(dump_config(config))
    for evaluated, count in (("base", 222), ("trained", right)):
        items = make_items("+" * count + "-" * (601 - count), mode="sampled")
        write_evaluation(run.evaluation(evaluated), {"sampled": items})
    finish_stage(run, "report", {})
    return run


def test_a_finished_run_is_judged(tmp_path: Path) -> None:
    run = finished_run(tmp_path, baseline(), 290)
    found = judge_runs({1: read_measured(run)}, baseline())
    assert (found.outcome, found.obstacles, found.seeds) == ("reproduced", (), (1,))
    facts = RunFacts(run)
    assert (found.trained.mean, found.trained.ci95) == (
        facts.headline("trained").accuracy,
        facts.headline("trained").ci95,
    )
    assert found.accuracy_before == facts.headline("base").accuracy


def test_a_run_of_another_recipe_is_not_comparable(tmp_path: Path) -> None:
    run = finished_run(tmp_path, baseline("rollout.n=8"), 290)
    found = judge_runs({1: read_measured(run)}, baseline())
    assert (found.outcome, found.obstacles) == ("not comparable", ("rollout.n is 8, the baseline's 5",))

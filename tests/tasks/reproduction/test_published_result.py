"""Baselines as configs, and runs of them against the published numbers."""

from pathlib import Path

import pytest

from rl_core.config.run import RunConfig
from tasks.cache.named_files import NamedFiles
from tasks.cache.stages import run_name, stage_digests
from tasks.reproduction.published_result import dry_run_problems, judge_runs, obstacles
from tasks.results.run_facts import RunFacts
from tests.tasks.baseline_runs import NAME, run_of, week
from tests.tasks.baseline_runs import baseline as configured

pytestmark = pytest.mark.usefixtures("at_the_root")


def baseline(*overrides: str) -> RunConfig:
    return configured(NAME, *overrides)


def test_the_published_result_is_no_part_of_a_run() -> None:
    config = baseline()
    other = baseline("published.accuracy=0.1")
    assert run_name(config) == run_name(other)

    def of_name(source) -> str:
        return source.name

    files = NamedFiles(of_name, paths_from=config.paths_from)
    assert stage_digests(config, files) == stage_digests(other, files)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("data.rollout_batch_size=256", "published.steps_per_epoch: the run would take 8, the reference takes 4"),
        ("trainer.total_epochs=3", "published.total_steps: the run would take 12, the reference takes 60"),
        ("actor.global_batch_size=100", "a step of 512 prompts does not split"),
        ("data.prompt_template=nowhere.jinja", "baselines/nowhere.jinja"),
    ],
)
def test_a_dry_run_names_what_is_not_the_references(override: str, named: str) -> None:
    assert any(named in str(problem) for problem in dry_run_problems(baseline(override)))


def test_seed_and_memory_may_change_and_nothing_that_moves_the_number() -> None:
    harmless = ["seed=3", "rollout.gpu_memory_utilization=0.5", "actor.micro_batch_size_per_device_for_update=1"]
    assert obstacles(baseline(*harmless), baseline()) == []
    changed = obstacles(baseline("actor.optim.lr=1e-5", "algorithm.kl=null"), baseline())
    assert changed[0] == "actor.optim.lr is 1e-05, the baseline's 1e-06"
    assert "algorithm.kl.coef is None, the baseline's 0.01" in changed


def test_a_finished_run_is_judged(tmp_path: Path) -> None:
    run = run_of(week(tmp_path, 1, 290))
    found = judge_runs({1: RunFacts(run)}, baseline())
    assert (found.outcome, found.obstacles, found.seeds) == ("reproduced", (), (1,))
    facts = RunFacts(run)
    trained = facts.headline("trained")
    assert (found.trained.mean, found.trained.ci95) == (trained.accuracy, trained.ci95)
    assert found.accuracy_before == facts.headline("base").accuracy


def test_a_run_of_another_recipe_is_not_comparable(tmp_path: Path) -> None:
    run = run_of(week(tmp_path, 1, 290, "rollout.n=8"))
    found = judge_runs({1: RunFacts(run)}, baseline())
    assert (found.outcome, found.obstacles) == ("not comparable", ("rollout.n is 8, the baseline's 5",))

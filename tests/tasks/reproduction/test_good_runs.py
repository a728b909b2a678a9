"""The earlier good runs of a recipe, found in the folders of runs."""

from pathlib import Path

import pytest

from rl_core.files import atomic_write_json
from rl_core.run_directory import RunDirectory
from tasks.reproduction.baseline_set import good_runs_before, judge_set
from tasks.results.run_facts import RunFacts
from tests.tasks.baseline_runs import run_of, week, week_of_seeds

pytestmark = pytest.mark.usefixtures("at_the_root")


def judged(folder: Path, number: int, *overrides: str, status: str = "good") -> RunDirectory:
    """A run that was judged alone."""
    run = run_of(week(folder, number, 290, *overrides))
    atomic_write_json(run.reproduction, {"status": status, "runs": [{"run": run.name}]})
    return run


def before(*runs: RunDirectory) -> list[list[str]]:
    """The ends of the names of the earlier good runs, in groups."""
    found = good_runs_before([RunFacts(run) for run in runs])
    return [[one.run.name.partition("_grpo-")[2] for one in group] for group in found]


def test_the_good_runs_of_the_recipe_before_this_one_newest_first(tmp_path: Path) -> None:
    for number in (3, 1, 2):
        judged(tmp_path, number)
    judged(tmp_path, 4, status="regressed")
    judged(tmp_path, 5, "actor.optim.lr=1e-5")
    judged(tmp_path, 9)
    assert before(run_of(week(tmp_path, 6, 290))) == [["week-3"], ["week-2"], ["week-1"]]


def test_runs_that_were_judged_together_are_found_together(tmp_path: Path) -> None:
    judged(tmp_path, 1)
    judge_set([week_of_seeds(tmp_path, 2, {1: 290, 2: 291, 3: 289})])
    judge_set([week_of_seeds(tmp_path, 3, {1: 250, 2: 251, 3: 249})])  # below the published band
    later = week_of_seeds(tmp_path, 4, {1: 290, 2: 290})
    seeds = [f"seed-{seed}-week-2" for seed in (1, 2, 3)]
    for runs in (list(later.runs.values()), list(later.runs.values())[::-1]):
        assert before(*runs) == [seeds, ["week-1"]]


def test_a_group_that_shares_a_run_is_no_earlier_one(tmp_path: Path) -> None:
    alone = run_of(week(tmp_path, 1, 290))
    first, more = week_of_seeds(tmp_path, 1, {1: 290, 2: 291}), week_of_seeds(tmp_path, 2, {3: 290})
    judge_set([first])
    assert before(run_of(week(tmp_path, 3, 290))) == [["seed-1-week-1", "seed-2-week-1"]]
    assert before(*first.runs.values(), *more.runs.values()) == []
    assert before(alone) == []


def test_a_group_is_good_with_all_its_runs_only(tmp_path: Path) -> None:
    group = week_of_seeds(tmp_path, 1, {1: 290, 2: 291})
    judge_set([group])
    later = run_of(week(tmp_path, 2, 290))
    assert len(before(later)) == 1
    group.runs[2].stage_manifest("report").unlink()
    assert before(later) == []


def test_seed_and_memory_may_differ(tmp_path: Path) -> None:
    judged(tmp_path, 1, "seed=5", "rollout.gpu_memory_utilization=0.5")
    assert before(run_of(week(tmp_path, 2, 290))) == [["week-1"]]


def test_a_run_of_another_checkpoint_is_of_another_recipe(tmp_path: Path) -> None:
    """`best` is chosen by the held-out rows that the accuracy is measured on; how a merge is proven moves no number."""
    judged(tmp_path, 1, "merge.probe_tolerance=1e-3")
    judged(tmp_path, 2, "merge.checkpoint=best")
    assert before(run_of(week(tmp_path, 3, 290))) == [["week-1"]]


def test_a_run_that_nobody_can_read_any_more_says_nothing(tmp_path: Path) -> None:
    judged(tmp_path, 1).config.write_text("experiment: x\nno_such_key: 1\n")
    judged(tmp_path, 2).stage_manifest("report").unlink()
    atomic_write_json(judged(tmp_path, 3).reproduction, {"status": "good", "runs": [{"seed": 1}]})
    atomic_write_json(judged(tmp_path, 4).reproduction, {"status": "good", "runs": 5})
    atomic_write_json(judged(tmp_path, 5).reproduction, {"status": "good", "runs": []})
    assert before(run_of(week(tmp_path, 6, 290))) == []


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    run = run_of(week(tmp_path, 1, 290))
    run.stage_manifest("report").unlink()
    with pytest.raises(FileNotFoundError, match="is not finished"):
        before(run)

"""The last good run of a recipe, found in the folders of runs."""

from pathlib import Path

import pytest

from rl_core.files import atomic_write_json
from tasks.reproduction.baseline_set import Member
from tasks.reproduction.good_runs import good_runs_before
from tests.tasks.baseline_runs import week

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def judged(folder: Path, number: int, *overrides: str, status: str = "good") -> Member:
    member = week(folder, number, 290, *overrides)
    atomic_write_json(member.run.reproduction, {"status": status})
    return member


def test_the_good_runs_of_the_recipe_before_this_one_newest_first(tmp_path: Path) -> None:
    for number in (3, 1, 2):
        judged(tmp_path, number)
    judged(tmp_path, 4, status="regressed")
    judged(tmp_path, 5, "actor.optim.lr=1e-5")
    judged(tmp_path, 9)
    found = good_runs_before(week(tmp_path, 6, 290).run)
    assert [run.name[-1] for run in found] == ["3", "2", "1"]


def test_seed_and_memory_may_differ(tmp_path: Path) -> None:
    judged(tmp_path, 1, "seed=5", "rollout.gpu_memory_utilization=0.5")
    assert [run.name[-6:] for run in good_runs_before(week(tmp_path, 2, 290).run)] == ["week-1"]


def test_a_run_of_another_checkpoint_is_of_another_recipe(tmp_path: Path) -> None:
    """`best` is chosen by the held-out rows that the accuracy is measured on; how a merge is proven moves no number."""
    judged(tmp_path, 1, "merge.probe_tolerance=1e-3")
    judged(tmp_path, 2, "merge.checkpoint=best")
    assert [run.name[-6:] for run in good_runs_before(week(tmp_path, 3, 290).run)] == ["week-1"]


def test_the_first_run_has_none_and_is_none_of_its_own(tmp_path: Path) -> None:
    assert good_runs_before(judged(tmp_path, 1).run) == []


def test_a_run_that_nobody_can_read_any_more_says_nothing(tmp_path: Path) -> None:
    judged(tmp_path, 1).run.config.write_text("experiment: x\nno_such_key: 1\n")
    judged(tmp_path, 2).run.stage_manifest("report").unlink()
    assert good_runs_before(week(tmp_path, 3, 290).run) == []


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    member = week(tmp_path, 1, 290)
    member.run.stage_manifest("report").unlink()
    with pytest.raises(FileNotFoundError, match="is not finished"):
        good_runs_before(member.run)

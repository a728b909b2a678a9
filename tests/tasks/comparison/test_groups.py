"""Runs that differ in the seed alone are one group, and a group's name says what it is."""

from pathlib import Path

import pytest

from rl_core.run_directory import RunDirectory
from tasks.cache.amendments import Amendment, write_amendments
from tasks.comparison.groups import group_runs, label_groups, what_differs
from tasks.results.run_facts import RunFacts
from tests.tasks.finished_run import finish_run

GSPO = ["algorithm.loss={type: gspo_token, clip_ratio_low: 3e-4}", "algorithm.loss_avg_mode=seq"]


def grouped(runs: list[RunDirectory], **named: list[RunDirectory]) -> dict[str, list[int]]:
    """Label -> seeds."""
    return {group.label: [run.config.seed for run in group.runs] for group in group_runs(runs, named)}


def test_seeds_of_one_recipe_are_a_group_and_the_first_run_names_the_first_group(tmp_path: Path) -> None:
    runs = [
        finish_run(tmp_path, f"seed={seed}", f"algorithm.advantage.type={name}")
        for seed, name in ((2, "rloo"), (1, "grpo"), (1, "rloo"), (3, "grpo"))
    ]
    assert list(grouped(runs).items()) == [("rloo", [1, 2]), ("grpo", [1, 3])]
    assert grouped([runs[0], runs[0]]) == {"counting": [2]}


def test_named_groups_come_first_and_take_their_runs_from_the_others(tmp_path: Path) -> None:
    runs = [finish_run(tmp_path, f"seed={seed}") for seed in (1, 2, 3)]
    assert list(grouped(runs, last=[runs[2]])) == ["last", "counting"]
    assert grouped(runs, last=[runs[2]]) == {"last": [3], "counting": [1, 2]}
    assert grouped([], a=[runs[0]], b=[runs[1]]) == {"a": [1], "b": [2]}


def test_runs_that_cannot_be_grouped_are_refused(tmp_path: Path) -> None:
    run = finish_run(tmp_path)
    with pytest.raises(ValueError, match="name the runs"):
        group_runs([])
    with pytest.raises(ValueError, match=f"{run.name} is named more than once"):
        group_runs([], {"a": [run], "b": [RunDirectory(tmp_path / "." / run.name)]})
    with pytest.raises(ValueError, match="two groups are called counting"):
        group_runs([run], {"counting": [finish_run(tmp_path, "seed=2")]})


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        ([["experiment=a"], ["experiment=b"]], ["a", "b"]),
        ([["rollout.n=4"], ["rollout.n=8"]], ["4", "8"]),
        ([["rollout.n=4"], ["actor.optim.lr=0.5", "rollout.n=8"]], ["n=4, lr=1e-06", "n=8, lr=0.5"]),
        ([[], ["algorithm.kl={coef: 0.5}"]], ["grpo", "grpo-kl"]),
        ([[], GSPO], ["grpo", "grpo-gspo_token"]),
        ([[], ["model.lora={rank: 4, alpha: 8}"]], ["lora=null, rank=-, alpha=-", "lora=-, rank=4, alpha=8.0"]),
    ],
)
def test_a_label_says_what_differs(tmp_path: Path, changes: list[list[str]], labels: list[str]) -> None:
    assert label_groups([begun(tmp_path, *overrides) for overrides in changes]) == labels


def begun(folder: Path, *overrides: str) -> RunFacts:
    return RunFacts(finish_run(folder, *overrides))


def test_seed_name_operation_and_places_are_no_differences(tmp_path: Path) -> None:
    one = begun(tmp_path)
    other = begun(tmp_path, "seed=9", "experiment=other", "tracking.console=true", "reward.workers=1")
    assert what_differs([one, other]) == {}
    assert what_differs([one, begun(tmp_path, "actor.optim.lr=0.5")]) == {"actor.optim.lr": ["1e-06", "0.5"]}
    longer = begun(tmp_path / "longer", "trainer.max_steps=99")
    assert what_differs([one, longer]) == {"trainer.max_steps": [str(one.config.trainer.max_steps or "null"), "99"]}


def test_runs_with_other_files_or_another_history_are_other_groups(tmp_path: Path) -> None:
    one, other = (finish_run(tmp_path / name, f"seed={seed}") for seed, name in enumerate(("a", "b"), start=1))
    assert len(group_runs([one, other])) == 1
    write_amendments(other, [Amendment(step=2, what=["own.py"], begun="", kept={})])
    assert len(group_runs([one, other])) == 2
    assert what_differs([RunFacts(one), RunFacts(other)]) == {"history": ["-", "after step 2: own.py changed"]}

"""Epochs are judged as a chain: what stands is continued, what does not belong is dropped."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_core.files import files_below
from rl_core.run_directory import RunDirectory
from tasks.manifests import Output, StageManifest, describe_outputs, write_manifest
from tasks.reuse import take_file
from tasks.training_state import mark_started, settle_training, standing_epochs

CHAIN = [("train-epoch-001", "d1"), ("train-epoch-002", "d2"), ("train-epoch-003", "d3")]
STEPS = 2


def train(run: RunDirectory, epochs: int, *, keep: int = 10) -> None:
    """Write what `epochs` epochs of two steps leave, of whose checkpoints only the newest `keep` remain."""
    run.root.mkdir(parents=True, exist_ok=True)
    for epoch in range(1, epochs + 1):
        for step in range(STEPS * epoch - 1, STEPS * epoch + 1):
            take_step(run, step)
        write_manifest(run, manifest_of(run, epoch))
    for epoch in range(1, epochs + 1 - keep):
        (checkpoint(run, STEPS * epoch) / "state").unlink()
        checkpoint(run, STEPS * epoch).rmdir()


def take_step(run: RunDirectory, step: int) -> None:
    run.rollouts(step).parent.mkdir(exist_ok=True)
    run.rollouts(step).write_text(f"rollouts {step}")
    run.validation(step).parent.mkdir(exist_ok=True)
    run.validation(step).write_text(f"answers {step}")
    for log in (run.metrics, run.timings):
        with log.open("a") as stream:
            stream.write(json.dumps({"step": step}) + "\n")
    if step % STEPS == 0:
        checkpoint(run, step).mkdir(parents=True)
        (checkpoint(run, step) / "state").write_text(f"state {step}")


def checkpoint(run: RunDirectory, step: int) -> Path:
    return run.checkpoints / f"step-{step:06d}"


def manifest_of(run: RunDirectory, epoch: int) -> StageManifest:
    last = STEPS * epoch
    records = [file(step) for file in (run.rollouts, run.validation) for step in (last - 1, last)]
    paths = [run.metrics, *records, checkpoint(run, last)]
    stage, digest = CHAIN[epoch - 1]
    return StageManifest(
        stage=stage,
        digest=digest,
        outputs=describe_outputs(run.root, paths),
        result={"first_step": last - 1, "last_step": last},
        seconds=1.0,
        finished_at="",
    )


def names(manifests: list[StageManifest]) -> list[str]:
    return [manifest.stage for manifest in manifests]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "runs" / "mine")


@pytest.fixture
def other(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "runs" / "other")


def test_nothing_stands_in_an_empty_run(run: RunDirectory) -> None:
    assert settle_training(run, CHAIN, elsewhere=True) == []


def test_finished_epochs_stand(run: RunDirectory) -> None:
    train(run, 3)
    assert names(standing_epochs(run, CHAIN)) == [stage for stage, _ in CHAIN]


def test_an_epoch_whose_checkpoint_was_pruned_stands_while_a_later_one_has_its_own(run: RunDirectory) -> None:
    train(run, 3, keep=1)
    assert len(standing_epochs(run, CHAIN)) == 3


def test_the_chain_ends_where_no_checkpoint_is_left(run: RunDirectory) -> None:
    train(run, 3, keep=2)
    (checkpoint(run, 6) / "state").write_text("altered")
    assert names(standing_epochs(run, CHAIN)) == ["train-epoch-001", "train-epoch-002"]
    (checkpoint(run, 4) / "state").unlink()
    assert standing_epochs(run, CHAIN) == []


@pytest.mark.parametrize("record", [RunDirectory.rollouts, RunDirectory.validation])
def test_an_altered_record_ends_the_chain_before_its_epoch(
    run: RunDirectory, record: Callable[[RunDirectory, int], Path]
) -> None:
    train(run, 3)
    record(run, 4).write_text("altered")
    assert names(settle_training(run, CHAIN, elsewhere=True)) == ["train-epoch-001"]
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-000002"]
    assert not run.rollouts(3).exists() and not run.validation(3).exists()
    assert not run.stage_manifest("train-epoch-002").exists()
    assert not run.stage_manifest("train-epoch-003").exists()


def test_a_changed_digest_drops_its_epoch_and_those_after_it(run: RunDirectory) -> None:
    train(run, 3)
    changed = [CHAIN[0], ("train-epoch-002", "new"), ("train-epoch-003", "new too")]
    assert names(settle_training(run, changed, elsewhere=True)) == ["train-epoch-001"]
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-000002"]


def test_a_changed_first_epoch_leaves_no_training_state(run: RunDirectory) -> None:
    train(run, 2)
    settle_training(run, [("train-epoch-001", "new")], elsewhere=True)
    assert list(run.checkpoints.iterdir()) == []
    assert run.metrics.read_text() == run.timings.read_text() == ""
    assert not run.rollouts(1).exists() and not run.validation(1).exists()


def test_a_half_trained_epoch_of_the_same_digest_is_kept(run: RunDirectory) -> None:
    train(run, 1)
    mark_started(run, *CHAIN[1])
    take_step(run, 3)
    checkpoint(run, 3).mkdir()
    assert names(settle_training(run, CHAIN, elsewhere=True)) == ["train-epoch-001"]
    assert checkpoint(run, 3).exists() and run.rollouts(3).exists()


def test_a_half_trained_epoch_of_another_digest_is_dropped(run: RunDirectory) -> None:
    train(run, 1)
    mark_started(run, "train-epoch-002", "old config")
    take_step(run, 3)
    checkpoint(run, 3).mkdir()
    settle_training(run, CHAIN, elsewhere=True)
    assert not checkpoint(run, 3).exists() and not run.rollouts(3).exists()
    assert checkpoint(run, 2).exists() and run.rollouts(2).exists()


def test_a_finished_and_then_damaged_epoch_is_not_mistaken_for_a_half_trained_one(run: RunDirectory) -> None:
    train(run, 2)
    mark_started(run, *CHAIN[1])
    run.rollouts(3).unlink()
    settle_training(run, CHAIN, elsewhere=True)
    assert not checkpoint(run, 4).exists()


def test_the_longest_chain_of_the_other_runs_is_taken_over(run: RunDirectory, other: RunDirectory) -> None:
    train(RunDirectory(run.root.with_name("shorter")), 1)
    train(other, 2, keep=1)
    taken = settle_training(run, CHAIN, elsewhere=True)
    assert [manifest.reused_from for manifest in taken] == ["other", "other"]
    assert standing_epochs(run, CHAIN) == taken
    assert run.metrics.read_bytes() == other.metrics.read_bytes()
    assert run.timings.read_bytes() == other.timings.read_bytes()
    assert run.rollouts(1).exists() and run.validation(1).exists()
    assert checkpoint(run, 4).exists() and not checkpoint(run, 2).exists()


def test_a_run_that_changes_while_it_is_taken_over_costs_this_one_nothing(
    run: RunDirectory, other: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(run, 1)
    train(other, 2)

    def retention(source: Path, target: Path, output: Output) -> None:
        (checkpoint(other, 4) / "state").unlink(missing_ok=True)
        take_file(source, target, output)

    monkeypatch.setattr("tasks.reuse.take_file", retention)
    before = {path: path.read_bytes() for path in files_below(run.root)}
    assert names(settle_training(run, CHAIN, elsewhere=True)) == ["train-epoch-001"]
    assert {path: path.read_bytes() for path in files_below(run.root)} == before


def test_only_the_lines_of_the_epochs_taken_over_come_along(run: RunDirectory, other: RunDirectory) -> None:
    train(other, 3)
    taken = settle_training(run, CHAIN[:2], elsewhere=True)
    assert len(taken) == 2
    assert len(run.metrics.read_text().splitlines()) == 4
    assert len(run.timings.read_text().splitlines()) == 4
    assert not checkpoint(run, 6).exists()


def test_a_run_that_has_as_much_itself_takes_nothing_over(run: RunDirectory, other: RunDirectory) -> None:
    train(run, 2)
    train(other, 2)
    assert all(manifest.reused_from is None for manifest in settle_training(run, CHAIN, elsewhere=True))


def test_a_fresh_run_takes_nothing_over(run: RunDirectory, other: RunDirectory) -> None:
    train(other, 2)
    assert settle_training(run, CHAIN, elsewhere=False) == []

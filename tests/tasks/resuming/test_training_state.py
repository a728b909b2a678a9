"""A lost record is made again, what another run has finished is taken over, and a process that is
killed in between costs neither."""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_core.checkpoints.store import CheckpointStore
from rl_core.digests import FileRecord
from rl_core.files import files_below
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock, RunLockLost, lock_owner
from tasks.cache.manifests import StageManifest, read_manifest, write_manifest
from tasks.cache.reuse import take_file
from tasks.resuming.training_start import TrainingStart, begun_epoch
from tasks.resuming.training_state import complete_epochs, take_up_training
from tests.tasks.continued import End, Geometry, Workers, attempt, intact, results, unsynced

GEOMETRY = Geometry(steps_per_epoch=2, epochs=3, save_freq=99, save_limit=3)
"""A checkpoint at the end of each epoch."""


def train(run: RunDirectory, epochs: int, *, half: bool = False, **changed: Any) -> None:
    """Train some epochs of three, and half of the next one with a checkpoint."""
    geometry = dataclasses.replace(GEOMETRY, **changed)
    done = 2 * epochs
    attempt(run, geometry, End(step=done + 1, kind="stopped" if half else "killed"))


def take_up(run: RunDirectory, *, elsewhere: bool = True, **changed: Any) -> TrainingStart:
    """What a start of the run begins with."""
    wanted = dataclasses.replace(GEOMETRY, **changed).wanted
    store = CheckpointStore(run.checkpoints, save_limit=wanted.trainer.save_limit)
    with unsynced():
        return take_up_training(run, wanted, store, elsewhere=elsewhere)


def checkpoint(run: RunDirectory, step: int) -> Path:
    return run.checkpoints / f"step-{step:06d}"


def back_to_now(*runs: RunDirectory) -> Callable[[], None]:
    """What brings the runs back to the state that they have now."""
    kept = {run: run.root.parent.with_name(f"{run.name} before") for run in runs}
    for run, copy in kept.items():
        shutil.copytree(run.root, copy)

    def bring_back() -> None:
        for run, copy in kept.items():
            shutil.rmtree(run.root, ignore_errors=True)
            shutil.copytree(copy, run.root)

    return bring_back


def names(manifests: list[StageManifest]) -> list[str]:
    return [manifest.stage for manifest in manifests]


EPOCHS = [stage for stage, _ in GEOMETRY.chain]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "runs" / "mine")


@pytest.fixture
def other(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "runs" / "other")


def test_finished_epochs_stand_though_their_checkpoints_are_gone(run: RunDirectory) -> None:
    train(run, 3, save_limit=1)
    assert intact(run) == [6]
    assert names(take_up(run).epochs) == EPOCHS


@pytest.mark.parametrize(("software", "kept"), [("2.0", True), ("3.0", False)])
def test_rollouts_of_steps_that_are_repeated_stand_if_the_same_software_repeats_them(
    run: RunDirectory, software: str, kept: bool
) -> None:
    attempt(run, GEOMETRY, End(step=3, kind="recorded"))
    assert intact(run) == [2] and run.rollouts(3).exists()
    assert take_up(run, elsewhere=False, software={"torch": software}).step == 2
    assert run.rollouts(3).exists() == kept


@pytest.mark.parametrize("record", [RunDirectory.rollouts, RunDirectory.validation])
def test_a_lost_record_is_made_again_from_an_older_checkpoint(
    run: RunDirectory, record: Callable[[RunDirectory, int], Path]
) -> None:
    train(run, 3, val_freq=2)
    size = record(run, 4).stat().st_size
    record(run, 4).write_text("altered")
    start = take_up(run, val_freq=2)
    assert (names(start.epochs), intact(run)) == (EPOCHS[:1], [2])
    assert not run.stage_manifest(EPOCHS[1]).exists() and not run.stage_manifest(EPOCHS[2]).exists()
    assert str(start).endswith(f"({record(run, 4)} has 7 bytes instead of {size})")


def test_a_lost_record_before_every_checkpoint_is_reported_and_costs_nothing(run: RunDirectory) -> None:
    train(run, 2, half=True, save_limit=1)
    run.rollouts(1).unlink()
    start = take_up(run, save_limit=1)
    assert (names(start.epochs), start.step, intact(run)) == (EPOCHS[:2], 5, [4, 5])
    assert str(start) == f"training continues after step 5 ({run.root}/rollouts/step-000001.parquet is missing)"
    assert attempt(run, dataclasses.replace(GEOMETRY, save_limit=1)).ended


def test_a_metrics_file_that_is_cut_in_the_line_of_a_saved_step_loses_no_step(
    run: RunDirectory, other: RunDirectory
) -> None:
    train(other, 3)
    train(run, 2)
    run.metrics.write_bytes(run.metrics.read_bytes()[:-9])
    done = attempt(run, GEOMETRY)
    assert str(done.start) == (
        f"training continues after step 2; 2 step(s) of the interrupted run are done again "
        f"({run.metrics} has no readable line of step 4)"
    )
    assert results(run) == results(other)


def test_a_process_that_is_killed_while_it_goes_back_for_a_record_makes_it_again(
    run: RunDirectory, other: RunDirectory, killed_before_each_call: Callable[..., int]
) -> None:
    train(other, 3)
    train(run, 2, half=True)
    run.rollouts(4).write_text("altered")
    prepare = back_to_now(run)

    def check() -> None:
        assert take_up(run, elsewhere=False).step == 2
        assert intact(run) == [2]

    assert killed_before_each_call(prepare, lambda: take_up(run, elsewhere=False), check) > 5
    attempt(run, GEOMETRY)
    assert results(run) == results(other)


def test_an_epoch_that_is_noted_late_names_no_checkpoint_of_a_later_step(
    run: RunDirectory, other: RunDirectory
) -> None:
    """A run that takes the first epoch over would go on from it."""
    train(other, 2, half=True, save_limit=1)
    other.stage_manifest(EPOCHS[0]).unlink()
    attempt(other, dataclasses.replace(GEOMETRY, save_limit=1))
    assert len(complete_epochs(other, GEOMETRY.wanted)) == 3
    assert complete_epochs(other, dataclasses.replace(GEOMETRY.wanted, chain=GEOMETRY.chain[:1])) == []


def test_the_longest_row_of_epochs_of_the_other_runs_is_taken_over(run: RunDirectory, other: RunDirectory) -> None:
    train(RunDirectory(run.root.with_name("shorter")), 1)
    train(other, 2, save_limit=1)
    start = take_up(run)
    assert [manifest.reused_from for manifest in start.epochs] == ["other", "other"]
    assert complete_epochs(run, GEOMETRY.wanted) == start.epochs
    assert run.metrics.read_bytes() == other.metrics.read_bytes()
    assert run.timings.read_bytes() == other.timings.read_bytes()
    assert run.rollouts(1).exists()
    assert intact(run) == [4] and not run.taken.exists()


def test_epochs_of_a_run_that_went_on_are_taken_over_while_their_checkpoint_is_there(
    run: RunDirectory, other: RunDirectory
) -> None:
    train(other, 1, half=True)
    assert names(take_up(run).epochs) == EPOCHS[:1]
    assert intact(run) == [2] and len(run.metrics.read_text().splitlines()) == 2


def test_a_run_that_has_lost_its_last_checkpoint_gives_no_epoch_away(run: RunDirectory, other: RunDirectory) -> None:
    train(other, 2, save_limit=1)
    (checkpoint(other, 4) / "state").unlink()
    assert complete_epochs(other, GEOMETRY.wanted) == []
    assert take_up(run).epochs == []


def test_a_run_that_changes_while_it_is_taken_over_costs_this_one_nothing(
    run: RunDirectory, other: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(run, 1)
    train(other, 2)

    def retention(source: Path, target: Path, output: FileRecord) -> None:
        (checkpoint(other, 4) / "state").unlink(missing_ok=True)
        take_file(source, target, output)

    monkeypatch.setattr("tasks.cache.reuse.take_file", retention)
    before = {path: path.read_bytes() for path in files_below(run.root)}
    assert names(take_up(run).epochs) == EPOCHS[:1]
    assert {path: path.read_bytes() for path in files_below(run.root)} == before


def test_a_process_that_is_killed_while_it_takes_over_loses_neither_its_own_epochs_nor_the_others(
    run: RunDirectory, other: RunDirectory, killed_before_each_call: Callable[..., int]
) -> None:
    """Whatever becomes of the other run meanwhile."""
    found = set()
    short = Geometry(steps_per_epoch=1, epochs=3, save_freq=1, save_limit=1)
    attempt(run, short, End(step=2, kind="killed"))
    attempt(other, short, End(step=3, kind="killed"))
    prepare = back_to_now(run, other)

    def check() -> None:
        shutil.rmtree(other.root)
        start = take_up(run, steps_per_epoch=1)
        found.add((len(start.epochs), start.step))
        assert max(intact(run)) == start.step

    assert killed_before_each_call(prepare, lambda: take_up(run, steps_per_epoch=1), check, every=4) > 10
    assert found == {(1, 1), (2, 2)}


@pytest.mark.parametrize(
    ("changed", "epochs"),
    [({}, 2), ({"software": {"torch": "2.1"}}, 0), ({"software": {}}, 0)],
    ids=["the same", "another version", "not noted"],
)
def test_epochs_are_taken_over_from_a_run_that_the_same_software_made(
    run: RunDirectory, other: RunDirectory, changed: dict[str, Any], epochs: int
) -> None:
    train(other, 2, **changed)
    assert len(take_up(run).epochs) == epochs
    assert len(take_up(other, **changed).epochs) == 2


def test_the_own_training_goes_on_with_other_software_and_notes_both(run: RunDirectory, other: RunDirectory) -> None:
    newer = {"torch": "2.1"}
    train(run, 1, half=True)
    start = take_up(run, software=newer)
    assert (names(start.epochs), start.step, start.trained_by) == (EPOCHS[:1], 3, GEOMETRY.software)
    assert attempt(run, dataclasses.replace(GEOMETRY, software=newer)).ended
    made_by = [finished_epoch(run, number).software for number in (1, 2, 3)]
    both = {"torch": "2.0; 2.1 after step 3"}
    assert made_by == [GEOMETRY.software, both, both]
    assert take_up(other, software=newer).epochs == []
    assert names(complete_epochs(run, GEOMETRY.wanted)) == EPOCHS[:1], "what came before the change is whole"


def test_a_training_that_goes_on_in_its_first_epoch_knows_what_it_was_begun_with(run: RunDirectory) -> None:
    for number, step in ((1, 2), (2, 4), (3, 6)):
        geometry = Geometry(steps_per_epoch=9, epochs=1, save_freq=1, save_limit=2, software={"torch": f"{number}"})
        attempt(run, geometry, End(step=step, kind="stopped"))
    begun = begun_epoch(run)
    assert begun is not None and begun.software == {"torch": "1; 2 after step 2; 3 after step 4"}
    assert take_up(run, software={"torch": "3"}, steps_per_epoch=9, epochs=1).trained_by == begun.software


def test_lines_of_timings_that_cannot_be_read_do_not_end_a_run(run: RunDirectory) -> None:
    train(run, 1)
    run.timings.write_text(run.timings.read_text().replace('{"', "{", 1))
    take_up(run)
    assert [line["step"] for line in read(run.timings)] == [2]
    assert json.loads(run.stage_manifest(EPOCHS[0]).read_text())["stage"] == EPOCHS[0]


def test_a_training_whose_lock_was_removed_and_taken_writes_nothing_more(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn, before = Workers.learn, {}

    def lose_the_lock(workers: Workers, step: int) -> None:
        learn(workers, step)
        if step == 4:
            run.lock.unlink()
            run.lock.write_text("another process")
            before.update({path: path.read_bytes() for path in files_below(run.root)})

    monkeypatch.setattr(Workers, "learn", lose_the_lock)
    with RunLock(run.lock):
        with pytest.raises(RunLockLost):
            attempt(run, GEOMETRY)
        assert {path: path.read_bytes() for path in files_below(run.root)} == before
        for write in (lambda: attempt(run, GEOMETRY), lambda: write_manifest(run, finished_epoch(run))):
            with pytest.raises(RunLockLost):
                write()
        assert {path: path.read_bytes() for path in files_below(run.root)} == before


def finished_epoch(run: RunDirectory, number: int = 1) -> StageManifest:
    manifest = read_manifest(run, EPOCHS[number - 1])
    assert manifest is not None
    return manifest


def test_a_training_whose_lock_was_removed_and_not_taken_goes_on(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = Workers.learn

    def remove_the_lock(workers: Workers, step: int) -> None:
        learn(workers, step)
        run.lock.unlink()

    monkeypatch.setattr(Workers, "learn", remove_the_lock)
    with RunLock(run.lock):
        assert attempt(run, GEOMETRY).ended
        assert lock_owner(run.lock) == str(os.getpid())

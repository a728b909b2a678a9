"""A checkpoint that is saved in the background is there whole or not at all, and its failure is not lost."""

import errno
import logging
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from rl_core.checkpoints.manifest import CheckpointInfo
from rl_core.checkpoints.store import BackgroundSaver, CheckpointStore, WriteState
from rl_core.digests import FileRecord


def info(step: int) -> CheckpointInfo:
    return CheckpointInfo(step=step)


class Gate:
    """Writes a state once it is opened."""

    def __init__(self, error: Exception | None = None) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self._error = error

    def write(self, folder: Path) -> Mapping[str, FileRecord]:
        self.entered.set()
        assert self.open.wait(30)
        if self._error:
            raise self._error
        (folder / "state").write_text("state")
        return {}


def write(folder: Path) -> Mapping[str, FileRecord]:
    (folder / "state").write_text("state")
    return {}


@pytest.fixture
def store(tmp_path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", save_limit=1)


def saver_of(store: CheckpointStore) -> BackgroundSaver:
    return BackgroundSaver(store, check=lambda: None)


def steps(store: CheckpointStore) -> list[int]:
    return [checkpoint.step for checkpoint in store.complete()]


def save(saver: BackgroundSaver, step: int, write: WriteState = write) -> None:
    saver.begin(write, info=info(step))


def test_the_older_checkpoint_stays_until_the_new_one_is_complete_and_waited_for(store):
    saver, gate = saver_of(store), Gate()
    save(saver, 1)
    saver.wait()
    save(saver, 2, gate.write)
    assert gate.entered.wait(30) and steps(store) == [1]
    gate.open.set()
    saver.wait()
    assert steps(store) == [2]
    saver.wait()  # nothing is in progress


def test_a_failure_is_raised_once_as_it_was_and_says_of_which_step(store):
    saver, gate = saver_of(store), Gate(OSError(errno.ENOSPC, "No space left on device"))
    save(saver, 1)
    saver.wait()
    gate.open.set()
    save(saver, 2, gate.write)
    with pytest.raises(OSError) as full:
        saver.wait()
    assert full.value.errno == errno.ENOSPC
    assert "while the checkpoint of step 2 was written" in "".join(full.value.__notes__)
    assert [path.name for path in (store.complete()[0].folder.parent).iterdir()] == ["step-000001"]
    saver.wait()


def test_the_end_of_a_block_waits_and_the_error_of_the_block_comes_first(store, caplog):
    with saver_of(store) as saver:
        save(saver, 1)
    assert steps(store) == [1]
    gate = Gate(OSError("the disk is failing"))
    gate.open.set()

    def step(number, error):
        with saver_of(store) as saver:
            save(saver, number, gate.write)
            if error is not None:
                raise error

    with pytest.raises(OSError, match="failing"):
        step(2, None)
    with caplog.at_level(logging.ERROR), pytest.raises(ValueError, match="in the step"):
        step(3, ValueError("in the step"))
    assert "the last checkpoint could not be saved either" in caplog.text


def test_a_process_that_may_not_write_the_run_any_more_changes_nothing(store):
    lost = False

    def check():
        if lost:
            raise PermissionError("another process writes the run")

    saver = BackgroundSaver(store, check=check)
    save(saver, 1)
    saver.wait()
    gate = Gate()
    save(saver, 2, gate.write)
    lost = True
    gate.open.set()
    with pytest.raises(PermissionError):
        saver.wait()
    assert steps(store) == [1]

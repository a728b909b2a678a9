"""A save that cannot fit does not start."""

import errno
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from rl_core.checkpoints.disk import DiskFull, check_room, free_bytes
from rl_core.checkpoints.manifest import CheckpointInfo
from rl_core.checkpoints.store import CheckpointStore
from rl_core.digests import FileRecord


def test_too_little_room_is_named_with_both_numbers_and_what_to_do(small_disk: Path) -> None:
    path = small_disk / "runs" / "not made yet"
    check_room(path, 1000)
    assert free_bytes(path) <= 1 << 20
    with pytest.raises(
        DiskFull, match=r"3\.00 GiB are needed and 0\.00 GiB are free on the disk of .*save_limit"
    ) as full:
        check_room(path, 3 << 30)
    assert full.value.errno == errno.ENOSPC


def save(store: CheckpointStore, step: int, kib: int) -> None:
    def write(folder: Path) -> Mapping[str, FileRecord]:
        (folder / "state").write_bytes(bytes(kib << 10))
        return {}

    store.save(step, write, info=CheckpointInfo(step=step, epoch=1, end_of_epoch=False))


def test_a_checkpoint_that_would_not_fit_is_refused_before_a_byte_is_written(small_disk: Path) -> None:
    store = CheckpointStore(small_disk, save_limit=3)
    save(store, 1, 600)
    started = []
    with pytest.raises(DiskFull):
        store.save(2, started.append, info=CheckpointInfo(step=2, epoch=1, end_of_epoch=False))
    assert started == []
    latest = store.latest()
    assert latest is not None
    assert latest.step == 1


def test_checkpoints_to_come_that_will_not_fit_are_warned_of_while_there_is_time(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = CheckpointStore(small_disk, save_limit=3)
    save(store, 1, 300)
    assert caplog.records == []
    with caplog.at_level(logging.WARNING):
        save(store, 2, 300)
    assert "will need" in caplog.text
    assert [checkpoint.step for checkpoint in store.complete()] == [1, 2]

"""A checkpoint is there whole or not at all; the newest ones and the best one are kept."""

import errno
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.checkpoints.manifest import CheckpointInfo
from rl_core.checkpoints.store import CheckpointStore, WriteState
from rl_core.digests import FileRecord
from rl_core.files import DiskFull, files_below


def info(step: int, score: float | None = None, *, interim: bool = False) -> CheckpointInfo:
    return CheckpointInfo(
        step=step,
        interim=interim,
        validation_score=score,
        loader={"cursor": step * 4, "order": [3, 1]},
        counters={"policy_version": step},
    )


def write_state(text: str) -> WriteState:
    def write(folder: Path) -> Mapping[str, FileRecord]:
        (folder / "shards").mkdir()
        (folder / "shards" / "0.distcp").write_text(text * 100)
        (folder / "probe.json").write_text(text)
        return {}

    return write


def save(
    store: CheckpointStore, step: int, score: float | None = None, text: str = "state", *, interim: bool = False
) -> None:
    store.save(write_state(f"{text} {step}"), info=info(step, score, interim=interim))


def steps(store: CheckpointStore) -> list[int]:
    return [checkpoint.step for checkpoint in store.complete()]


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "checkpoints"


def test_a_saved_checkpoint_is_read_back_equal(root):
    saved = CheckpointStore(root, save_limit=2).save(write_state("x"), info=info(3, 0.1 + 0.2))
    read = CheckpointStore(root, save_limit=2).latest()
    assert read is not None and read == saved
    assert read.info == info(3, 0.1 + 0.2)
    assert set(read.files) == {"shards/0.distcp", "probe.json"}


def test_the_leftovers_of_a_killed_save_are_removed_and_nothing_else(root, tmp_path):
    store = CheckpointStore(root, save_limit=2)
    for step in (1, 2, 3):
        save(store, step)
    save(store, 4)
    save(CheckpointStore(tmp_path / "earlier", save_limit=1), 1)
    shutil.copytree(tmp_path / "earlier" / "step-000001", root / "step-000001")  # as if killed before its removal
    (root / "step-000009").mkdir()  # damaged: the next save removes it, not the one who reads
    store.prune(4)
    assert steps(store) == [3, 4]
    assert (root / "step-000009").is_dir()


def test_an_empty_root_has_no_checkpoint(root):
    store = CheckpointStore(root, save_limit=1)
    assert (store.latest(), store.best(), store.complete()) == (None, None, [])


def test_a_kill_anywhere_in_a_save_leaves_the_old_checkpoint_or_the_new_one(root, killed_before_each_call):
    """Retention included: step 1 may go only when step 3 is safely there."""
    seen = set()

    def prepare():
        shutil.rmtree(root, ignore_errors=True)
        for step in (1, 2):
            save(CheckpointStore(root, save_limit=2), step)

    def check():
        complete = steps(store := CheckpointStore(root, save_limit=2))
        assert complete in ([1, 2], [1, 2, 3], [2, 3])
        latest = store.latest()
        assert latest is not None and (latest.folder / "probe.json").read_text() == f"state {latest.step}"
        seen.add(tuple(complete))
        save(store, 4)
        assert [path.name for path in sorted(root.iterdir())][:-1] == [f"step-{complete[-1]:06d}"]

    kills = killed_before_each_call(prepare, lambda: save(CheckpointStore(root, save_limit=2), 3), check)
    assert kills > 15
    assert seen == {(1, 2), (1, 2, 3), (2, 3)}


@pytest.mark.parametrize("size_mib", [2, 64])
def test_a_full_disk_leaves_the_last_checkpoint_intact_and_no_temporary(small_disk, size_mib):
    store = CheckpointStore(small_disk / "checkpoints", save_limit=2)
    save(store, 1)

    def write(folder):
        for number in range(size_mib):
            (folder / str(number)).write_bytes(bytes(1 << 20))
        return {}

    with pytest.raises(OSError) as full:
        store.save(write, info=info(2))
    assert full.value.errno == errno.ENOSPC
    latest = store.latest()
    assert latest is not None and latest.step == 1
    assert [path.name for path in (small_disk / "checkpoints").iterdir()] == ["step-000001"]
    save(store, 2)
    assert steps(store) == [1, 2]


def _flip_last_byte(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


DAMAGE = {
    "a file is missing": lambda folder: (folder / "probe.json").unlink(),
    "a file is cut": lambda folder: (folder / "probe.json").write_text("st"),
    "a file is altered in place": lambda folder: _flip_last_byte(folder / "shards" / "0.distcp"),
    "the manifest is missing": lambda folder: (folder / "manifest.json").unlink(),
    "the manifest is torn": lambda folder: (folder / "manifest.json").write_text('{"format": 1, "inf'),
    "the manifest is altered": lambda folder: (folder / "manifest.json").write_text(
        (folder / "manifest.json").read_text().replace('"cursor": 32', '"cursor": 33')
    ),
    "the manifest is a list": lambda folder: (folder / "manifest.json").write_text("[]"),
    "the folder was renamed": lambda folder: (
        shutil.copytree(folder, folder.with_name("step-000009")) and shutil.rmtree(folder)
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_newest_checkpoint_is_reported_once_and_the_next_older_one_is_used(root, damage):
    events = []
    store = CheckpointStore(root, save_limit=3, log_event=lambda kind, **facts: events.append((kind, facts)))
    for step in (4, 6, 8):
        save(store, step, score=step / 10)
    DAMAGE[damage](root / "step-000008")
    for _ in range(2):
        latest, best = store.latest(), store.best()
        assert latest is not None and latest.step == 6
        assert best is not None and best.step == 6
    assert [kind for kind, _ in events] == ["checkpoint-damaged"]
    assert events[0][1]["checkpoint"] in {"step-000008", "step-000009"}


def test_a_damaged_later_checkpoint_never_pushes_out_the_one_just_saved(root):
    """With save_limit 1 a step 8 that only looks complete would otherwise leave nothing to resume from."""
    store = CheckpointStore(root, save_limit=1)
    save(store, 8)
    _flip_last_byte(root / "step-000008" / "probe.json")
    assert store.latest() is None
    save(store, 5)
    assert steps(store) == [5]


def test_an_interim_checkpoint_is_continued_from_and_leaves_no_trace(root):
    store = CheckpointStore(root, save_limit=2)
    for step, score in [(2, 0.1), (4, 0.3), (6, 0.2)]:
        save(store, step, score)
    save(store, 7, score=0.9, interim=True)
    assert steps(store) == [4, 6, 7]
    latest, best = store.latest(), store.best()
    assert latest is not None and latest.step == 7
    assert best is not None and best.step == 4
    save(store, 8, score=0.2)
    assert steps(store) == [4, 6, 8]


def test_the_latest_until_a_step_is_the_newest_intact_one_before_it(root):
    store = CheckpointStore(root, save_limit=4)
    for step in (2, 4, 6, 8):
        save(store, step)
    _flip_last_byte(root / "step-000006" / "probe.json")
    found = {until: store.latest(until=until) for until in (1, 2, 7, 8, 9)}
    assert {until: at and at.step for until, at in found.items()} == {1: None, 2: 2, 7: 4, 8: 8, 9: 8}


scores = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, -1.0]))


@given(history=st.lists(scores, min_size=1, max_size=9), save_limit=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_after_any_history_the_newest_and_the_earliest_best_are_kept(history, save_limit):
    with tempfile.TemporaryDirectory() as folder:
        store = CheckpointStore(Path(folder), save_limit=save_limit)
        for step, score in enumerate(history, start=1):
            save(store, step, score)
        everything = range(1, len(history) + 1)
        expected = set(everything[-save_limit:])
        known = [score for score in history if score is not None]
        if known:
            expected.add(history.index(max(known)) + 1)
        assert steps(store) == sorted(expected)
        assert len(files_below(Path(folder))) == 3 * len(expected)


def write_kib(kib: int) -> WriteState:
    def write(folder: Path) -> Mapping[str, FileRecord]:
        (folder / "state").write_bytes(bytes(kib << 10))
        return {}

    return write


def test_a_checkpoint_that_would_not_fit_is_refused_before_a_byte_is_written(small_disk):
    store = CheckpointStore(small_disk, save_limit=3)
    store.save(write_kib(600), info=info(1))
    started = []
    with pytest.raises(DiskFull, match=r"0\.00 GiB are free on the disk of .*save_limit"):
        store.save(started.append, info=info(2))
    assert started == []
    assert steps(store) == [1]


def test_checkpoints_to_come_that_will_not_fit_are_warned_of_while_there_is_time(small_disk, caplog):
    store = CheckpointStore(small_disk, save_limit=3)
    store.save(write_kib(300), info=info(1))
    assert caplog.records == []
    store.save(write_kib(300), info=info(2))
    assert "will need" in caplog.text
    assert steps(store) == [1, 2]

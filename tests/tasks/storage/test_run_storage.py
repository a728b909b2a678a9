"""What a run that is worked on has from its copy: stages that this machine has not, and nothing that harms."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rl_core.digests import folder_records
from rl_core.files import atomic_write_text
from rl_core.run_directory import RunDirectory
from rl_core.storage.place import Place
from rl_core.storage.store import RunStore
from tasks.cache.manifests import WantedStage, read_manifest
from tasks.cache.reuse import find_complete
from tasks.resuming.training_start import started_file
from tasks.storage.contents import PROGRESS
from tasks.storage.run_storage import VARIABLE, RunStorage, storage_settings
from tests.tasks.continued import End, Geometry, attempt, unsynced
from tests.tasks.finished_run import config_with, finish_run, finish_stage
from tests.tasks.storage.machines import EVENTS, log_event, machine, opened, storage_of

GEOMETRY = Geometry(steps_per_epoch=4, epochs=1, save_freq=1, save_limit=1)

PREPARED = WantedStage(name="prepare", digest="d1")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.at(str(tmp_path / "share"))


@pytest.fixture
def copied(tmp_path: Path, place: Place) -> RunDirectory:
    """A finished run that was copied."""
    EVENTS.clear()
    run = finish_run(tmp_path / "machine-1" / "runs")
    finish_stage(run, "prepare", {}, run.data, digest="d1")
    run.events.write_text('{"kind":"started"}\n')
    run.inputs.mkdir()
    (run.inputs / "inputs.json").write_text("{}")
    storage_of(run, place).close()
    return run


@pytest.fixture
def here(copied: RunDirectory, tmp_path: Path) -> RunDirectory:
    """Its folder on a machine that has nothing of it."""
    run = RunDirectory(tmp_path / "machine-2" / "runs" / copied.name)
    run.root.mkdir(parents=True)
    return run


def test_a_stage_that_the_copy_has_is_fetched_and_recognised(
    copied: RunDirectory, here: RunDirectory, place: Place
) -> None:
    storage = storage_of(here, place)
    assert find_complete(here, WantedStage(name="prepare", digest="another digest"), fetch=storage.bring_stage) is None
    assert find_complete(here, WantedStage(name="cold-start", digest="d1"), fetch=storage.bring_stage) is None
    assert find_complete(here, PREPARED, fetch=storage.bring_stage) == read_manifest(copied, "prepare")
    assert {path.name for path in here.root.iterdir()} == {"data", "stages"}
    assert folder_records(here.data) == folder_records(copied.data)


def test_an_empty_folder_fetches_the_files_that_a_run_begins_with(
    copied: RunDirectory, here: RunDirectory, place: Place
) -> None:
    storage_of(here, place).bring_beginnings()
    names = ("config.yaml", "events.jsonl", "inputs/inputs.json", "stages/prepare.json", "data/manifest.json")
    assert all((here.root / name).read_bytes() == (copied.root / name).read_bytes() for name in names)
    assert not here.merged_model.exists()


def test_a_config_that_this_machine_has_stays(copied: RunDirectory, place: Place) -> None:
    atomic_write_text(copied.config, "changed here: true\n")
    storage_of(copied, place).bring_beginnings()
    assert copied.config.read_text() == "changed here: true\n"


def test_a_damaged_stage_of_the_copy_is_made_again(copied: RunDirectory, here: RunDirectory, place: Place) -> None:
    here.data.mkdir()
    (here.data / "half").write_text("of an earlier attempt")
    for file in Path(place.below(copied.name).root, "objects").iterdir():
        file.write_bytes(b"x")
    assert find_complete(here, PREPARED, fetch=storage_of(here, place).bring_stage) is None
    assert EVENTS[-1][0] == "storage-failed" and "has different content" in str(EVENTS[-1][1]["reason"])
    assert (here.data / "half").is_file()


def test_files_that_a_fresh_folder_lacks_stay_in_the_copy(
    copied: RunDirectory, here: RunDirectory, place: Place
) -> None:
    """A machine whose start the storage did not answer has made one stage so far, and copies."""
    before = set(RunStore(place.below(copied.name), verify=True).records())
    here.data.mkdir()
    (here.data / "rows").write_text("made again")
    finish_stage(here, "prepare", {}, here.data, digest="d1")
    storage_of(here, place).close()
    after = RunStore(place.below(copied.name), verify=True).records()
    assert set(after) == before
    assert list(after["stage-prepare"].files) == ["data/rows", "stages/prepare.json"]


def test_training_is_left_alone_until_its_epochs_are_known(tmp_path: Path, place: Place) -> None:
    run = machine(tmp_path, 1)
    with unsynced():
        attempt(run, GEOMETRY, End(step=3, kind="killed"))
        storage_of(run, place).close()
        assert PROGRESS not in RunStore(place.below("mine"), verify=True).records()
        with opened(run, place, GEOMETRY):
            pass
    assert RunStore(place.below("mine"), verify=True).records()[PROGRESS].facts["step"] == 2


@contextmanager
def held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Copying waits with its first file until the block sets the event; the block begins when it waits."""
    begun, may_go_on = threading.Event(), threading.Event()
    put = Place.put

    def slowly(self: Place, file: Path, name: str, *, size: int) -> str:
        begun.set()
        assert may_go_on.wait(60)
        return put(self, file, name, size=size)

    with monkeypatch.context() as patched:
        patched.setattr(Place, "put", slowly)
        yield may_go_on
        assert begun.is_set()


def test_a_consistent_state_is_copied_while_training_goes_on(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention removes the checkpoint, and the next epoch's note replaces the one that is being copied."""
    run = machine(tmp_path, 1)
    geometry = Geometry(steps_per_epoch=2, epochs=2, save_freq=1, save_limit=1)
    EVENTS.clear()
    with unsynced():
        attempt(run, geometry, End(step=2, kind="killed"))
        with opened(run, place, geometry) as storage, held_up(monkeypatch) as may_go_on:
            note = started_file(run).read_bytes()
            storage.copy_checkpoints()
            attempt(run, geometry, End(step=4, kind="killed"))
            assert not (run.checkpoints / "step-000001").exists() and started_file(run).read_bytes() != note
            may_go_on.set()
            storage.wait()
            copied = RunStore(place.below("mine"), verify=True).records()[PROGRESS]
    assert copied.facts == {"step": 1, "begun": ["train-epoch-001", "1"]}
    assert RunStore(place.below("mine"), verify=True).records()[PROGRESS].facts["step"] == 3
    assert EVENTS == [] and not list(run.root.glob(".storage*/*"))


def test_an_exception_of_a_file_system_ends_the_copy_alone(
    copied: RunDirectory, place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class OfItsOwn(Exception):
        pass

    def fail(self: Place, name: str, data: bytes) -> None:
        raise OfItsOwn("quota")

    monkeypatch.setattr(Place, "write", fail)
    with caplog.at_level(logging.WARNING):
        storage_of(copied, place).close()
    assert EVENTS == [("storage-failed", {"reason": "OfItsOwn: quota"})]
    assert "is not complete; `sightline run --resume` completes it" in caplog.text


def test_a_run_that_is_copied_nowhere_asks_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    run = RunDirectory(tmp_path / "run")
    storage = RunStorage.of_config(config_with(), run, log_event=log_event)
    storage.bring_beginnings()
    assert storage.bring_stage("prepare", "d1") is False
    storage.bring_training(GEOMETRY.chain, here=lambda: pytest.fail("nobody asks"))
    storage.copy()
    storage.copy_checkpoints()
    storage.close()
    assert not run.root.exists()


def test_the_environment_names_the_storage_before_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_with("storage.address=/mnt/share", "storage.verify=false")
    monkeypatch.delenv(VARIABLE, raising=False)
    assert storage_settings(config_with()) is None
    assert storage_settings(config).address == "/mnt/share"
    monkeypatch.setenv(VARIABLE, "s3://bucket/runs")
    assert storage_settings(config_with()).address == "s3://bucket/runs"
    found = storage_settings(config)
    assert (found.address, found.verify) == ("s3://bucket/runs", False)

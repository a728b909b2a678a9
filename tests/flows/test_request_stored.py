"""A run that this machine has not is continued by its name, from its copy."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from flows.request import ResolvedRun, RunRequest, split_address
from rl_core.run_directory import RunDirectory
from rl_core.storage.place import Place
from tasks.storage.run_storage import VARIABLE
from tests.tasks.finished_run import finish_run
from tests.tasks.storage.machines import storage_of


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "share"


@pytest.fixture
def copied(tmp_path: Path, share: Path) -> RunDirectory:
    run = finish_run(tmp_path / "elsewhere")
    storage_of(run, Place.at(str(share))).close()
    return run


def resumed(name: str, runs_dir: Path) -> ResolvedRun:
    return RunRequest(resume=name, runs_dir=str(runs_dir)).resolved(datetime.now(UTC))


def test_the_config_of_a_stored_run_is_fetched_from_where_the_environment_says(
    copied: RunDirectory, share: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(share))
    resolved = resumed(copied.name, tmp_path / "runs")
    assert resolved.run.root == tmp_path / "runs" / copied.name
    assert resolved.run.config.read_bytes() == copied.config.read_bytes()
    assert resolved.config.storage is None and resolved.is_continued
    assert resumed(copied.name, tmp_path / "runs") == resolved


@pytest.mark.parametrize("form", ["{share}/{name}", "file://{share}/{name}/"])
def test_the_address_of_a_stored_run_leads_to_it_and_stays_its_storage(
    copied: RunDirectory, share: Path, tmp_path: Path, form: str
) -> None:
    address = form.format(share=share, name=copied.name)
    for _ in range(2):
        resolved = resumed(address, tmp_path / "runs")
        assert resolved.run.root == tmp_path / "runs" / copied.name
        assert resolved.config.storage.address == address.rstrip("/").removesuffix(f"/{copied.name}")


def test_a_name_that_nobody_has_names_both_places(
    copied: RunDirectory, share: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"no run nobody; .*/runs has none$"):
        resumed("nobody", tmp_path / "runs")
    monkeypatch.setenv(VARIABLE, str(share))
    with pytest.raises(ValueError, match=rf"no run nobody; .* has none, and neither has the storage {share}"):
        resumed("nobody", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_storage_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: Path) -> None:
    share.write_text("a file and no folder")
    monkeypatch.setenv(VARIABLE, str(share))
    with pytest.raises(ValueError, match=f"the storage {share} does not answer"):
        resumed("nobody", tmp_path / "runs")


@pytest.mark.parametrize("name", ["quickstart-1a2b", "runs/quickstart-1a2b", "/tmp/runs/quickstart-1a2b/"])
def test_a_name_or_a_folder_is_no_address(name: str) -> None:
    assert split_address(name) == (None, name)

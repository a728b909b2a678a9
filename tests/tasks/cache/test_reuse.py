"""A finished stage is found while its files stand, in this run or in the one beside it, and never otherwise."""

import dataclasses
import logging
from pathlib import Path
from typing import Any

import pytest

from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest, WantedStage, describe_outputs, read_manifest, write_manifest
from tasks.cache.reuse import bring_folder, find_complete, stage_paths
from tasks.cache.software import Software
from tests.tasks.finished_run import finish_stage

SOFTWARE = {"torch": "2.0", "sightline": "0.1.0 (code a)"}


def wanted(stage: str = "evaluate-base", digest: str = "d1", **changed: Any) -> WantedStage:
    """A stage that is asked for, which this software would make."""
    return WantedStage(**{"name": stage, "digest": digest, "software": SOFTWARE, **changed})


def finish(
    run: RunDirectory, stage: str, digest: str, text: str = "result", *, software: Software = SOFTWARE
) -> StageManifest:
    """Write one file for the stage, and its manifest."""
    folder = stage_paths(run, stage)[0]
    folder.mkdir(parents=True)
    (folder / "items.parquet").write_text(text)
    return finish_stage(run, stage, {"accuracy": 0.5}, folder, digest=digest, software=software)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "runs" / "mine")


@pytest.fixture
def other(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "runs" / "other")


def test_a_finished_stage_is_found_as_it_was_written(run: RunDirectory) -> None:
    written = finish(run, "evaluate-base", "d1")
    assert find_complete(run, wanted()) == written


@pytest.mark.parametrize("text", ["resulT", "result and more", "resul", None])
def test_an_altered_or_deleted_artefact_is_noticed(run: RunDirectory, text: str | None) -> None:
    finish(run, "evaluate-base", "d1")
    artefact = run.evaluation("base") / "items.parquet"
    artefact.unlink() if text is None else artefact.write_text(text)
    assert find_complete(run, wanted()) is None


def test_a_growing_log_may_grow_and_may_not_change(run: RunDirectory) -> None:
    run.root.mkdir(parents=True)
    run.metrics.write_text('{"step": 1}\n')
    manifest = finish_stage(run, "train-epoch-001", {}, run.metrics, digest="d1")
    run.metrics.write_text('{"step": 1}\n{"step": 2}\n')
    assert find_complete(run, wanted("train-epoch-001", "d1")) == manifest
    run.metrics.write_text('{"step": 9}\n{"step": 2}\n')
    assert find_complete(run, wanted("train-epoch-001", "d1")) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"stage": "evaluate-base"}', '{"outputs": {"a": {"b": 1}}}'])
def test_a_damaged_manifest_counts_as_none(run: RunDirectory, text: str) -> None:
    finish(run, "evaluate-base", "d1")
    run.stage_manifest("evaluate-base").write_text(text)
    assert read_manifest(run, "evaluate-base") is None


def test_a_stage_of_another_run_is_taken_over_and_says_so(run: RunDirectory, other: RunDirectory) -> None:
    finish(other, "evaluate-base", "d1")
    found = find_complete(run, wanted())
    assert found is not None
    assert found.reused_from == "other"
    assert (run.evaluation("base") / "items.parquet").read_text() == "result"
    assert (run.evaluation("base") / "items.parquet").stat().st_nlink == 2
    assert find_complete(run, wanted(), elsewhere=False) == found


@pytest.mark.parametrize("made_by", [{"torch": "2.1"}, {**SOFTWARE, "sightline": "0.1.0 (code b)"}])
def test_a_stage_of_other_software_is_not_taken_over_and_stays_valid_in_its_own_run(
    run: RunDirectory, other: RunDirectory, made_by: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    written = finish(other, "evaluate-base", "d1", software=made_by)
    assert find_complete(run, wanted()) is None
    assert "evaluate-base of other is not taken over: " in caplog.text
    assert find_complete(other, wanted()) == written


def test_a_stage_comes_from_the_run_that_the_same_software_made(run: RunDirectory) -> None:
    for name, version in (("a", "1.0"), ("b", "2.0"), ("c", "3.0")):
        finish(RunDirectory(run.root.with_name(name)), "evaluate-base", "d1", name, software={"torch": version})
    found = find_complete(run, wanted(software={"torch": "2.0"}))
    assert found is not None and found.reused_from == "b"


def test_a_stage_taken_over_twice_keeps_its_first_origin(run: RunDirectory, other: RunDirectory) -> None:
    finish(other, "evaluate-base", "d1")
    find_complete(run, wanted())
    third = find_complete(RunDirectory(run.root.with_name("third")), wanted())
    assert third is not None and third.reused_from == "other"


def test_an_altered_stage_of_another_run_is_not_taken_over(run: RunDirectory, other: RunDirectory) -> None:
    finish(other, "evaluate-base", "d1")
    (other.evaluation("base") / "items.parquet").write_text("altered")
    assert find_complete(run, wanted()) is None
    assert not run.evaluation("base").exists()


def test_taking_over_removes_what_an_older_config_left(run: RunDirectory, other: RunDirectory) -> None:
    finish(run, "evaluate-base", "d0", "old")
    (run.evaluation("base") / "leftover.png").write_text("old")
    finish(other, "evaluate-base", "d1")
    find_complete(run, wanted())
    assert [path.name for path in run.evaluation("base").iterdir()] == ["items.parquet"]


def test_a_promised_file_that_is_missing_is_an_error(run: RunDirectory) -> None:
    with pytest.raises(FileNotFoundError, match="should have written"):
        describe_outputs(run.root, [run.report])


@pytest.mark.parametrize("name", ["../../victim.txt", "data/../../../victim.txt", "/victim.txt"])
def test_a_manifest_that_names_a_file_outside_its_run_counts_for_nothing(
    run: RunDirectory, other: RunDirectory, name: str
) -> None:
    victim = run.root.parents[1] / "victim.txt"
    written = finish(other, "evaluate-base", "d1")
    victim.write_text("result")  # what the outputs' hash is of
    (output,) = written.outputs.values()
    path = str(victim) if name.startswith("/") else name
    write_manifest(other, dataclasses.replace(written, outputs={path: output}))
    run.root.mkdir(parents=True)
    assert read_manifest(other, "evaluate-base") is None
    assert find_complete(run, wanted()) is None
    assert victim.read_text() == "result"


def test_a_folder_may_be_taken_over_from_a_stage_with_another_digest(run: RunDirectory, other: RunDirectory) -> None:
    """As the prepared rows, which do not depend on the seed."""
    finish(other, "prepare", "of seed 1", text="rows")
    brought = bring_folder(run, wanted("prepare", "of seed 2"), run.data, fits=lambda found: found.result != {})
    assert brought and (run.data / "items.parquet").samefile(other.data / "items.parquet")
    assert read_manifest(run, "prepare") is None and not run.initial_model.exists()


@pytest.mark.parametrize("obstacle", ["software", "altered", "another"])
def test_a_folder_that_is_not_the_wanted_one_is_not_brought(
    obstacle: str, run: RunDirectory, other: RunDirectory
) -> None:
    finish(other, "prepare", "of seed 1", software={"torch": "1.0"} if obstacle == "software" else SOFTWARE)
    if obstacle == "altered":
        (other.data / "items.parquet").write_text("changed")
    stage = wanted("prepare", "of seed 2")
    assert not bring_folder(run, stage, run.data, fits=lambda found: obstacle != "another")
    assert not run.data.exists()

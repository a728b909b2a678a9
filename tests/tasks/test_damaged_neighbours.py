"""Whatever became of a run, the runs beside it go on as if it was not there."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_core.files import files_below
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import WantedStage, read_manifest
from tasks.cache.reuse import find_complete
from tasks.reproduction.baseline_set import good_runs_before
from tasks.results.run_facts import RunFacts
from tests.damages import DAMAGES, FOLDER_DAMAGES
from tests.tasks.baseline_runs import run_of, week
from tests.tasks.continued import Geometry, attempt, results
from tests.tasks.finished_run import finish_stage

GEOMETRY = Geometry(steps_per_epoch=1, epochs=2, save_freq=9, save_limit=1)
PREPARED = WantedStage(name="prepare", digest="d0", software={"torch": "2.0"})
SMALL_FILES = ("stages/train-epoch-001.json", "stages/prepare.json", "timings.jsonl", "metrics.jsonl", "lock")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A finished training, with the stage before it."""
    run = RunDirectory(tmp_path_factory.mktemp("trained") / "other")
    attempt(run, GEOMETRY)
    run.data.mkdir()
    (run.data / "rows").write_text("rows")
    run.lock.write_text("1")
    finish_stage(run, "prepare", {}, run.data, software=PREPARED.software)
    return run


@pytest.fixture
def other(trained: RunDirectory, tmp_path: Path) -> RunDirectory:
    """A copy of it, beside which there is room for others."""
    return copied(trained, tmp_path / "runs" / "other")


def copied(run: RunDirectory, target: Path) -> RunDirectory:
    return RunDirectory(shutil.copytree(run.root, target))


def goes_on(run: RunDirectory) -> None:
    """The run takes over what is whole, and trains what is not."""
    found = find_complete(run, PREPARED)
    assert found is None or (run.data / "rows").read_text() == "rows"
    assert attempt(run, GEOMETRY, elsewhere=True).ended
    assert sorted(results(run))[0] == "checkpoints/step-000002/manifest.json"


@pytest.mark.parametrize("name", SMALL_FILES)
def test_other_runs_with_a_damaged_file(trained: RunDirectory, tmp_path: Path, name: str) -> None:
    for damage in DAMAGES:
        DAMAGES[damage](copied(trained, tmp_path / damage).root / name)
    goes_on(RunDirectory(tmp_path / "mine"))


@pytest.mark.parametrize("name", ["", "stages", "checkpoints", "checkpoints/step-000002", "rollouts", "data"])
def test_other_runs_with_a_damaged_folder(trained: RunDirectory, tmp_path: Path, name: str) -> None:
    for damage in FOLDER_DAMAGES:
        FOLDER_DAMAGES[damage](copied(trained, tmp_path / damage).root / name)
    goes_on(RunDirectory(tmp_path / "mine"))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"step-000', '"' + "x" * 5000 + "/step-000"),
        lambda text: text.replace("rollouts/", "/etc/"),
        lambda text: text.replace("rollouts/", "../"),
        lambda text: text.replace('"last_step": 1', '"last_step": "one"'),
        lambda text: text.replace('"last_step": 1', '"other": 1'),
        lambda text: text.replace('"size": ', '"size": -'),
        lambda text: text.replace('"size": ', '"bytes": '),
    ],
    ids=["long-name", "absolute", "outside", "no-number", "no-step", "negative", "other-key"],
)
@pytest.mark.parametrize("with_hash", [True, False], ids=["", "of-an-earlier-version"])
def test_a_manifest_that_was_edited(other: RunDirectory, change: Callable[[str], str], with_hash: bool) -> None:
    manifest = other.stage_manifest("train-epoch-001")
    text = change(manifest.read_text())
    if not with_hash:
        lines = text.splitlines(keepends=True)
        (own,) = [line for line in lines if line.startswith('  "sha256"')]
        text = text.replace(own, "")
    manifest.write_text(text)
    goes_on(RunDirectory(other.root.with_name("mine")))


def test_an_altered_manifest_is_noticed(other: RunDirectory) -> None:
    manifest = other.stage_manifest("prepare")
    assert read_manifest(other, "prepare") is not None
    manifest.write_text(manifest.read_text().replace('"seconds": 1.5', '"seconds": 2.5'))
    assert read_manifest(other, "prepare") is None


def test_a_link_to_the_run_itself_is_no_other_run(other: RunDirectory) -> None:
    (other.root.parent / "again").symlink_to(other.root)
    (other.data / "rows").write_text("ROWS")
    before = {path: path.read_bytes() for path in files_below(other.root)}
    assert find_complete(other, PREPARED) is None
    assert {path: path.read_bytes() for path in files_below(other.root)} == before


@pytest.mark.parametrize("name", ["reproduction.json", "config.yaml", "stages/report.json"])
def test_damaged_runs_are_no_good_runs(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    old = run_of(week(tmp_path, 1, 290))
    old.reproduction.write_text(json.dumps({"status": "good", "runs": [{"run": old.name}]}))
    for damage in DAMAGES:
        DAMAGES[damage](copied(old, tmp_path / damage).root / name)
    (group,) = good_runs_before([RunFacts(run_of(week(tmp_path, 2, 290)))])
    assert [run.run for run in group] == [old]

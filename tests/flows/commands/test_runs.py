"""`sightline runs` and `sightline clean` from the command line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from rl_core.files import atomic_write_json
from rl_core.run_directory import RunDirectory
from tests.tasks.housekeeping.runs import aged, failed, finished, readable


@pytest.fixture
def runs(tmp_path: Path) -> list[RunDirectory]:
    """A finished run that supersedes another one, and a failed one."""
    good = finished(tmp_path, day=2)
    return [good, finished(tmp_path, tag="before"), aged(readable(failed(tmp_path, "broken"), good), days=40)]


def called(*arguments: object, runs_dir: Path, code: int = 0) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*map(str, arguments), "--runs-dir", str(runs_dir)])
    assert done.exit_code == code, done.output
    return done.output


def test_runs_shows_a_line_a_run_the_newest_first(runs: list[RunDirectory], tmp_path: Path) -> None:
    (tmp_path / "reproductions").mkdir()
    text = called("runs", runs_dir=tmp_path)
    assert "finished" in text and "0.0% → 50.0%" in text
    assert "failed the disk is full" in text and "5 weeks" in text
    assert text.index(runs[0].name) < text.index("broken")
    assert f"3 runs in {tmp_path}" in text.replace("\n", "")


def test_clean_shows_first_and_removes_with_yes(runs: list[RunDirectory], tmp_path: Path) -> None:
    good, before, broken = runs
    rule = ("clean", "--failed", "--superseded")
    text = called(*rule, runs_dir=tmp_path)
    assert "2 runs would be removed" in text and "repeat it with --yes" in text
    assert f"superseded by {good.name}" in text and "failed, unchanged for 5 weeks" in text
    assert all(run.config.is_file() for run in runs)
    assert "2 runs removed" in called(*rule, "--yes", runs_dir=tmp_path)
    assert good.config.is_file() and not before.root.exists() and not broken.root.exists()
    assert "0 runs removed" in called(*rule, "--yes", runs_dir=tmp_path)


def test_clean_shows_what_it_keeps_and_why(runs: list[RunDirectory], tmp_path: Path) -> None:
    atomic_write_json(runs[1].reproduction, {"status": "good"})
    text = called("clean", "--superseded", "--older-than", "0h", "--yes", runs_dir=tmp_path)
    assert "it is a good run of its baseline" in text and runs[1].config.is_file()


def test_a_run_that_cannot_be_removed_changes_the_exit_code(
    runs: list[RunDirectory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("tasks.housekeeping.removal.remove_folder", refuse)
    text = called("clean", "--failed", "--yes", runs_dir=tmp_path, code=1)
    assert "Permission denied" in text and runs[2].config.is_file()

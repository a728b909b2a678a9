"""`sightline compare` from the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.comparing import asked_groups
from rl_core.run_directory import RunDirectory
from tests.tasks.finished_run import finish_run


@pytest.fixture
def runs(tmp_path: Path) -> list[RunDirectory]:
    """Two seeds of each of two recipes."""
    return [
        finish_run(tmp_path / "runs", f"seed={seed}", f"algorithm.advantage.type={name}", trained=signs)
        for name, signs in (("grpo", "+---"), ("rloo", "+++-"))
        for seed in (1, 2)
    ]


def test_runs_by_folder_or_name_become_a_page_and_a_table(runs: list[RunDirectory], tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    arguments = [str(runs[0].root), *(run.name for run in runs[1:]), "--runs-dir", str(tmp_path / "runs")]
    done = CliRunner().invoke(app, ["compare", *arguments, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "25.0 %" in done.output and "+50.0" in done.output
    assert "rloo and grpo do not differ significantly" in done.output
    figures = json.loads(out.with_suffix(".json").read_text())
    assert [group["seeds"] for group in figures["groups"]] == [[1, 2], [1, 2]]


def test_groups_can_be_named(runs: list[RunDirectory], tmp_path: Path) -> None:
    names = [run.name for run in runs]
    asked = asked_groups([], [f"ours={names[0]},{names[3]}", f"theirs={names[1]}"], runs_dir=str(tmp_path / "runs"))
    assert {group.label: len(group.runs) for group in asked} == {"ours": 2, "theirs": 1}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((["nothing"], []), "no run nothing"),
        (([], ["ours"]), "must read NAME=RUN,RUN"),
        (([], ["=a"]), "must read NAME=RUN,RUN"),
        (([], []), "name the runs to compare"),
    ],
)
def test_a_missing_run_is_named(given: tuple[list[str], list[str]], named: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=named):
        asked_groups(*given, runs_dir=str(tmp_path))


def test_two_groups_of_one_name_are_refused(runs: list[RunDirectory], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one name"):
        asked_groups([], [f"a={runs[0].name}", f"a={runs[1].name}"], runs_dir=str(tmp_path / "runs"))

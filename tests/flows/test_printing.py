"""Names of others stand on the terminal as they are, and commands can be copied from it."""

import shlex
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from flows.cli import app
from flows.commands.doctor import examine
from flows.printing import say
from flows.process.error_messages import cause_of
from flows.reproducing import BaselineSet
from flows.request import resume_command
from rl_core.files import why_no_folder
from rl_core.run_directory import RunDirectory

ODD = "my [old] runs *?' $HOME"
NAMES = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1).filter(lambda name: "/" not in name)


def printed(text: str, **options: str) -> str:
    console = Console(file=StringIO(), width=80)
    say(console, text, **options)
    return console.file.getvalue()


@given(NAMES)
def test_a_line_is_printed_as_it_is(text: str) -> None:
    assert printed(text) == f"{text}\n"
    assert printed(text, label="[red]failed[/red]") == f"failed {text}\n"


@given(NAMES)
def test_the_command_that_continues_is_read_by_a_shell_as_it_was_meant(folder: str) -> None:
    run = RunDirectory(Path(folder) / "small-0123")
    expected = ["sightline", "run", "--resume", "small-0123"]
    assert shlex.split(resume_command(run)) == [
        *expected,
        *([] if folder == "runs" else ["--runs-dir", str(Path(folder))]),
    ]
    baseline_set = BaselineSet(baselines=["one"], runs_dir=folder)
    assert shlex.split(baseline_set.command)[-1] in (folder, baseline_set.name)


def test_doctor_shows_the_command_of_a_run_in_an_odd_folder(tmp_path: Path) -> None:
    runs_dir = tmp_path / ODD
    (runs_dir / "small-0123").mkdir(parents=True)
    (runs_dir / "small-0123" / "config.yaml").write_text("")
    console = Console(file=StringIO(), width=1000)
    examine(runs_dir, console)
    assert shlex.quote(str(runs_dir)) in console.file.getvalue()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("file", "it is a file"),
        ("file/below", "a part of its path is a file"),
        ("loop", "its symbolic links form a circle"),
        ("loop/below", "its symbolic links form a circle"),
        ("x" * 300, "the name is too long"),
        ("new/" + "x" * 300, "the name is too long"),
    ],
)
@pytest.mark.parametrize(
    "command", ["plan configs/quickstart.yaml", "run --resume small", "runs", "doctor", "show small"]
)
def test_what_is_no_folder_of_runs_is_named_in_every_command(tmp_path: Path, name: str, why: str, command: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    done = CliRunner().invoke(app, [*command.split(), "--runs-dir", str(tmp_path / name)])
    told = cause_of(done.exception)
    assert told.startswith("--runs-dir ") and why in told and "Errno" not in told


def test_a_folder_of_runs_may_be_there_or_not(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "a" / "b", Path(), Path("runs")):
        assert why_no_folder(folder) is None


def test_what_the_system_says_is_a_sentence_without_its_number() -> None:
    with pytest.raises(OSError, match="Errno") as error:
        Path("/nowhere/at/all").read_text()
    assert cause_of(error.value) == "/nowhere/at/all: No such file or directory"
    assert cause_of(OSError("no number")) == "no number"

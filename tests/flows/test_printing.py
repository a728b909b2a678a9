"""Names of others stand on the terminal as they are, and commands can be copied from it."""

import shlex
from io import StringIO
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from flows.commands.doctor import examine
from flows.printing import say
from flows.reproducing import BaselineSet
from flows.request import resume_command
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

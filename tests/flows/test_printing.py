"""Names of others stand on the terminal as they are, and commands can be copied from it."""

import shlex
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from flows.commands.doctor import examine
from flows.printing import print_line, table_of
from flows.reproducing import BaselineSet
from flows.request import resume_command
from rl_core.run_directory import RunDirectory

ODD = "my [old] runs *?' $HOME"
NAMES = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1).filter(lambda name: "/" not in name)


def printed(text: str, **options: str) -> str:
    console = Console(file=StringIO(), width=80)
    print_line(console, text, **options)
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


CELLS = st.lists(st.text("abc-ß字", min_size=1, max_size=30), min_size=1, max_size=5).map(" ".join)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4), st.integers(min_value=66, max_value=130))
def test_a_table_fits_the_terminal_and_breaks_no_word(rows: list[tuple[str, ...]], width: int) -> None:
    """The longest word of one column leaves room for those of the others, or it does not."""
    console = Console(file=StringIO(), width=width)
    table = table_of("run", "state", "figure", title="Runs", right=["figure"])
    for row in rows:
        table.add_row(*row)
    console.print(table)
    text = console.file.getvalue()
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert Counter(word for row in rows for cell in row for word in cell.split()) <= Counter(text.split())


@pytest.mark.parametrize(("width", "is_table"), [(80, True), (60, False)])
def test_the_name_of_a_run_stays_in_one_line(width: int, is_table: bool) -> None:
    console = Console(file=StringIO(), width=width)
    table = table_of("run", "state", "to continue")
    name = "geometry3k-dapo-0123456789ab-20260101T000000"
    table.add_row(name, "failed the disk is full: free some space on the run's disk", "in an hour")
    console.print(table)
    text = console.file.getvalue()
    assert name in text and ("┃" in text) == is_table

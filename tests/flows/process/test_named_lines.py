"""What processes print side by side: whole lines, each after the name of its run."""

import os
import subprocess
import sys
from contextlib import suppress

import pytest

from flows.process.own_process import NamedLines


def prints(text: str, lines: NamedLines) -> None:
    subprocess.run(
        [sys.executable, "-c", f"import os; os.write(1, {text.encode()!r})"], stdout=lines.stream, check=True
    )


def test_every_line_comes_whole_and_once_after_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes write into one file, as a run and what it starts do: reading moves nobody's position."""
    with NamedLines.of("seed 2") as lines:
        prints("load the model\nstep 1", lines)
        lines.show()
        assert capsys.readouterr().out == "seed 2: load the model\n"
        prints("6: 96 °\n\nand the", lines)
        lines.show()
        lines.show()
        prints(" last words", lines)
    assert capsys.readouterr().out == "seed 2: step 16: 96 °\nseed 2: and the last words\n"


def test_nobody_who_reads_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `| head`, or for a terminal of another encoding."""
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w", encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    with NamedLines.of("seed 2") as lines:
        prints("96 °\n", lines)
        lines.show()
        prints("and on\n", lines)
    with suppress(BrokenPipeError):
        stream.close()


def test_a_terminal_has_room_for_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with NamedLines.of("seed 2") as lines:
        assert lines.variables == {}, "there is no terminal"
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", "100")
        assert lines.variables == {"COLUMNS": "92"}
        monkeypatch.setenv("COLUMNS", "20")
        assert lines.variables == {"COLUMNS": "40"}

"""A run in a process of its own: why it ended, also when it could not note it, and what it prints among others."""

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from flows.printing import last_lines
from flows.process.own_process import NamedLines, run_alone
from flows.request import resolve_run
from rl_core.run_lock import RunLock
from rl_core.stop import StopRequest

pytestmark = pytest.mark.usefixtures("at_the_root")

SMALL = "tests/e2e/configs/small.yaml"


def test_a_process_that_dies_before_its_run_leaves_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = resolve_run(SMALL, runs_dir=tmp_path)
    resolved.run.root.mkdir()
    resolved.run.log.write_text("of an older attempt")
    (tmp_path / "typer.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    failure = run_alone(resolved, StopRequest())
    assert failure is not None
    lines = resolved.run.last_output.read_text().splitlines()
    last = "ImportError: libcudart.so.12: cannot open shared object file"
    ended = "its process ended with exit code 1 before it opened the run"
    assert failure == f"{ended}; it printed last: {last} ({resolved.run.last_output} has more)"
    assert "typer.py" in lines[-2] or "raise ImportError" in lines[-2], lines
    assert lines[-1] == last


def test_a_run_has_the_devices_of_its_place_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    resolved = resolve_run(SMALL, runs_dir=tmp_path)
    (tmp_path / "typer.py").write_text("import os\n\nprint(os.environ['CUDA_VISIBLE_DEVICES'])\nraise SystemExit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f,GPU-77")
    run_alone(resolved, StopRequest(), variables={"CUDA_VISIBLE_DEVICES": "GPU-77"}, name="seed 2")
    run_alone(resolved, StopRequest())
    assert capfd.readouterr().out.splitlines() == ["seed 2: GPU-77", "GPU-8f,GPU-77"]


def test_a_locked_run_names_who_writes_it(tmp_path: Path) -> None:
    resolved = resolve_run(SMALL, runs_dir=tmp_path)
    with RunLock(resolved.run.lock):
        failure = run_alone(resolved, StopRequest())
    assert failure is not None and "is being written by the process" in failure


def test_printed_text_is_shown_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "of-nobody-else")
    with tempfile.TemporaryFile() as printed:
        printed.write(b"x" * 100_000 + b"\n" + b"line\n" * 50 + b"login with of-nobody-else failed\n\n")
        lines = last_lines(printed, 20)
    assert lines[-1] == "login with [WANDB_API_KEY] failed" and lines[:-1] == ["line"] * 19


def prints(text: str, lines: NamedLines) -> None:
    subprocess.run(
        [sys.executable, "-c", f"import os; os.write(1, {text.encode()!r})"], stdout=lines.stream, check=True
    )


def test_every_line_comes_whole_and_once_after_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes write into one file, as a run and what it starts do: reading moves nobody's position."""
    with tempfile.TemporaryFile() as stream:
        lines = NamedLines("seed 2", stream)
        prints("load the model\nstep 1", lines)
        lines.show()
        assert capsys.readouterr().out == "seed 2: load the model\n"
        prints("6: 96 °\n\nand the", lines)
        lines.show()
        lines.show()
        prints(" last words", lines)
        lines.show(is_ended=True)
    assert capsys.readouterr().out == "seed 2: step 16: 96 °\nseed 2: and the last words\n"


def test_printing_without_a_reader_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `| head`, or for a terminal of another encoding."""
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w", encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    with tempfile.TemporaryFile() as printed:
        lines = NamedLines("seed 2", printed)
        prints("96 °\n", lines)
        lines.show()
    with suppress(BrokenPipeError):
        stream.close()

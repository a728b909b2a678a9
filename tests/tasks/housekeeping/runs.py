"""Runs in every state, beside each other."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rl_core.files import atomic_write_json
from rl_core.run_directory import RunDirectory
from tasks.attempts import remember
from tests.tasks.finished_run import finish_run, finish_stage

NOW = datetime.now(UTC)


def finished(runs_dir: Path, *overrides: str, tag: str = "", day: int = 1) -> RunDirectory:
    """A run with its report, written on a day of January 2026."""
    run = finish_run(runs_dir / "made", *overrides)
    final = RunDirectory(runs_dir / (run.name + (f"-{tag}" if tag else "")))
    os.rename(run.root, final.root)
    (runs_dir / "made").rmdir()
    final.report.write_text("<html>")
    atomic_write_json(final.summary, {})
    finish_stage(final, "report", {}, final.report, finished_at=f"2026-01-{day:02d}T00:00:00+00:00")
    return final


def failed(
    runs_dir: Path, name: str, *, end: str | None = "failed", cause: str | None = "the disk is full"
) -> RunDirectory:
    """A run whose last attempt ended so; `None` is a process that was killed."""
    run = RunDirectory(runs_dir / name)
    run.root.mkdir(parents=True)
    run.config.write_text("experiment: [")
    (run.root / "model").mkdir()
    remember(run, "00000000-0000-0000-0000-000000000000", end=end, cause=cause)
    return run


def readable(run: RunDirectory, other: RunDirectory) -> RunDirectory:
    """The run, with the config of another one."""
    run.config.write_bytes(other.config.read_bytes())
    return run


def aged(run: RunDirectory, days: float) -> RunDirectory:
    """The run, as if nothing had been written to it for so many days."""
    moment = (NOW - timedelta(days=days)).timestamp()
    for path in [*run.root.rglob("*"), run.root]:
        os.utime(path, (moment, moment), follow_symlinks=False)
    return run

"""Stands for the process of a run where a set is looked at: it prepares and trains nothing, and notes what it sees.

A process that imports `typer`, as the command line does at once, gets it from `put_in_place`.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from rl_core.config.loading import load_config
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest, is_recorded, write_manifest
from tasks.cache.stages import stage_digests

NOTES = "notes.txt"
_ACT = "STAND_IN"
_PATIENCE = 60.0


def put_in_place(folder: Path, monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    """Let the runs that are started from now on act like this: "together" or "stopped"."""
    (folder / "typer.py").write_text("from tests.flows.process import stand_in\n\nstand_in.main()\n")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    monkeypatch.setenv(_ACT, act)


def main() -> NoReturn:
    """Act as a run, which fails in the end."""
    run = RunDirectory(Path(sys.argv[-1]))
    config = load_config(run.config)
    prepared = StageManifest(
        stage="prepare",
        digest=stage_digests(config)["prepare"],
        outputs={},
        result={},
        seconds=0.0,
        finished_at="2026-01-01T00:00:00+00:00",
    )
    {"together": _together, "stopped": _stopped}[os.environ[_ACT]](run, config.seed, prepared)
    sys.exit(1)


def _together(run: RunDirectory, seed: int, prepared: StageManifest) -> None:
    """The first one ends when the second one has started, and this one when the third one has."""
    others = [RunDirectory(path.parent) for path in run.root.parent.glob("*/config.yaml") if path.parent != run.root]
    digests = [stage_digests(load_config(other.config))["prepare"] for other in others]
    is_alone = not all(is_recorded(other, "prepare", one) for other, one in zip(others, digests, strict=True))
    _note(run, f"{seed} starts while another one prepares" if is_alone else f"{seed} starts")
    sys.stdout.write(f"on {os.environ['CUDA_VISIBLE_DEVICES'] or 'none'}\n")
    time.sleep(1.0)  # the next one would start meanwhile
    write_manifest(run, prepared)
    if seed < 3:
        _wait(lambda: f"{seed + 1} starts" in _noted(run))
    _note(run, f"{seed} ends")


def _stopped(run: RunDirectory, seed: int, prepared: StageManifest) -> None:
    """The second one stops the process that has started both."""

    def stop(*_: object) -> None:
        _note(run, f"{seed} stops")
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    write_manifest(run, prepared)
    if seed == 2:
        os.kill(os.getppid(), signal.SIGTERM)
    _wait(lambda: False)


def _note(run: RunDirectory, text: str) -> None:
    with (run.root.parent / NOTES).open("a") as notes:
        notes.write(f"{text}\n")


def _noted(run: RunDirectory) -> str:
    return (run.root.parent / NOTES).read_text()


def _wait(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE
    while not holds() and time.monotonic() < until:
        time.sleep(0.05)

"""Starting the runs, each in a process of its own: a process holds one engine, and a crash costs one run."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.algorithms.race import Curve


def prepared_work(folder: Path) -> Path:
    """The folder with the rows and weights that all runs share; made when they are not there."""
    if not (folder / "prepared" / "model" / "base").is_dir():
        _run(folder, "prepare")
    return folder


def run(recipe: str, seed: int, *, work: Path, results: Path) -> Curve:
    """Train, and leave the curve in `results`. Raises CalledProcessError; what was printed is in the work's log."""
    name = f"{recipe}-{seed}"
    _run(work, name, "--recipe", recipe, "--seed", str(seed), "--out", str(results))
    return Curve.read(results / f"{name}.json")


def _run(work: Path, name: str, *words: str) -> None:
    work.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.algorithms.one", "--work", str(work), *words]
    settings = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with (work / f"{name}.log").open("w") as log:
        subprocess.run(command, env={**os.environ, **settings}, stdout=log, stderr=subprocess.STDOUT, check=True)

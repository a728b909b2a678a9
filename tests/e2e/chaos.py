"""Kills runs at many moments, starts them again, and compares everything they leave with an unbroken run.

    python -m tests.e2e.chaos --n 30 --seed 1 --output result.json

Moments: `n` drawn from the seed over the unbroken run's wall time, each in a run of its own; and two runs that die in
the replacement of every file that they write, one right before and one right after it, and are started again each time.
What came out is added to the runs in the file `--output`. Exits 1 when any run differs.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tasks.code_version import code_version
from tests.e2e.processes import prefect_server
from tests.e2e.runs import (
    REPOSITORY,
    command,
    environment,
    fingerprint,
    run_arguments,
    sightline,
    the_run,
)
from tests.results import differences

KILLER = str(REPOSITORY / "tests" / "e2e" / "killer.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class Unbroken:
    """The reference run: its wall time and what it leaves."""

    seconds: float
    results: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A run that was killed: when, how often (0 when it had ended before), and its results that differ."""

    moment: str
    kills: int
    different: list[str]


def unbroken_run(folder: Path) -> Unbroken:
    """Run the small pipeline to its end."""
    folder.mkdir()
    start = time.monotonic()
    sightline(*run_arguments(folder), home=folder, timeout=900)
    return Unbroken(seconds=time.monotonic() - start, results=fingerprint(the_run(folder / "runs")))


def killed_at_time(folder: Path, seconds: float, reference: Unbroken) -> Outcome:
    """Start a run, SIGKILL its process group after `seconds`, and start it again as a person would."""
    folder.mkdir()
    process = subprocess.Popen(
        command(*run_arguments(folder)),
        env=environment(folder),
        cwd=REPOSITORY,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        process.wait(seconds)
        kills = 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kills = 1
    sightline(*run_arguments(folder), home=folder, timeout=900)
    return Outcome(moment=f"after {seconds:.4g} s", kills=kills, different=_different(folder, reference))


def killed_in_each_replacement(folder: Path, moment: str, reference: Unbroken) -> Outcome:
    """Start a run until it no longer dies: it does so once `moment` ("before" or "after") each file's replacement."""
    folder.mkdir()
    deaths = folder / "deaths"
    arguments = command(*run_arguments(folder), launcher=(KILLER, moment, f"{folder}/runs/"))
    with prefect_server(folder, folder / "server.txt") as (_, variables):
        while (status := _call(arguments, variables | {"DEATHS_FILE": str(deaths)}, folder / "output.txt")) != 0:
            assert status == -signal.SIGKILL, (folder / "output.txt").read_text()
            print(f"  died {moment} {deaths.read_text().splitlines()[-1]}", flush=True)
    kills = len(deaths.read_text().splitlines())
    return Outcome(moment=f"{moment} each replacement", kills=kills, different=_different(folder, reference))


def _call(arguments: list[str], variables: Mapping[str, str], output: Path) -> int:
    with output.open("wb") as stream:  # a pipe would stay open for as long as a child that outlives the run
        return subprocess.run(
            arguments, env=variables, cwd=REPOSITORY, stdout=stream, stderr=subprocess.STDOUT, check=False
        ).returncode


def _different(folder: Path, reference: Unbroken) -> list[str]:
    return differences(reference.results, fingerprint(the_run(folder / "runs")))


def chaos(root: Path, reference: Unbroken, *, n: int, seed: int) -> Iterator[Outcome]:
    """Every killed run."""
    for moment in ("before", "after"):
        yield killed_in_each_replacement(root / moment, moment, reference)
    generator = random.Random(seed)
    for number in range(n):
        yield killed_at_time(root / f"{number}", generator.uniform(0.0, reference.seconds), reference)


def add_result(path: Path, summary: Mapping[str, object]) -> None:
    """Append what one call of this script found to those in the file."""
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    path.write_text(json.dumps({"runs": [*runs, summary]}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    outcomes = []
    with tempfile.TemporaryDirectory() as root:
        reference = unbroken_run(Path(root) / "unbroken")
        for outcome in chaos(Path(root), reference, n=arguments.n, seed=arguments.seed):
            print(outcome, flush=True)
            outcomes.append(outcome)
    bad = [outcome for outcome in outcomes if outcome.different]
    summary = {
        "command": f"python -m tests.e2e.chaos --n {arguments.n} --seed {arguments.seed}",
        "code": str(code_version()),
        "cores": os.cpu_count(),
        "unbroken_seconds": round(reference.seconds, 1),
        "kills": sum(outcome.kills for outcome in outcomes),
        "different": len(bad),
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    if arguments.output:
        add_result(arguments.output, summary)
    print(f"{summary['kills']} kills, {len(bad)} of {len(outcomes)} runs differ")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()

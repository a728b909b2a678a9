"""Kills runs at many moments, starts them again, and compares everything they leave with an unbroken run.

    python -m tests.e2e.chaos --n 30 --seed 1 --output result.json

Moments: `n` drawn from the seed over the unbroken run's wall time, and one in each file replacement (every k-th with
`--replacements-every k`, none with 0). Exits 1 when any resumed run differs.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.e2e.runs import (
    REPOSITORY,
    command,
    differences,
    environment,
    fingerprint,
    run_arguments,
    sightline,
    the_run,
)

KILLER = str(REPOSITORY / "tests" / "e2e" / "killer.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class Unbroken:
    """The reference run: its wall time, its file replacements, and what it leaves."""

    seconds: float
    replacements: int
    results: dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One killed run: when it was killed, whether the kill came in time, and the results that differ."""

    moment: str
    was_killed: bool
    different: list[str]


def unbroken_run(folder: Path) -> Unbroken:
    """Run the small pipeline to its end, counting its file replacements."""
    folder.mkdir()
    counter = folder / "replacements"
    start = time.monotonic()
    subprocess.run(
        command(*run_arguments(folder), launcher=(KILLER, "before", "0")),
        env={**environment(folder), "REPLACEMENTS_FILE": str(counter)},
        cwd=REPOSITORY,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return Unbroken(
        seconds=time.monotonic() - start,
        replacements=int(counter.read_text()),
        results=dict(fingerprint(the_run(folder / "runs"))),
    )


def killed_at_time(folder: Path, seconds: float) -> bool:
    """Start a run and SIGKILL its process group after `seconds`; false when it had ended before."""
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
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def killed_at_replacement(folder: Path, moment: str, number: int) -> bool:
    """Run until the given file replacement kills the process; false when the run has fewer."""
    done = subprocess.run(
        command(*run_arguments(folder), launcher=(KILLER, moment, str(number))),
        env=environment(folder),
        cwd=REPOSITORY,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return done.returncode == -signal.SIGKILL


def resume_and_compare(folder: Path, reference: Unbroken) -> list[str]:
    """Start the run again as a person would, and name the results that differ."""
    sightline(*run_arguments(folder), home=folder, timeout=900)
    return differences(reference.results, fingerprint(the_run(folder / "runs")))


def chaos(*, n: int, seed: int, replacements_every: int) -> tuple[Unbroken, list[Outcome]]:
    """The unbroken run and every killed one."""
    with tempfile.TemporaryDirectory() as root:
        reference = unbroken_run(Path(root) / "unbroken")
        outcomes = []
        for number, (kind, value) in enumerate(moments(reference, n, seed, replacements_every)):
            folder = Path(root) / f"killed-{number}"
            folder.mkdir()
            was_killed = (
                killed_at_time(folder, value) if kind == "time" else killed_at_replacement(folder, kind, int(value))
            )
            outcome = Outcome(
                moment=f"{kind} {value:.4g}", was_killed=was_killed, different=resume_and_compare(folder, reference)
            )
            print(f"{number}: {outcome}", flush=True)
            outcomes.append(outcome)
        return reference, outcomes


def moments(reference: Unbroken, n: int, seed: int, replacements_every: int) -> list[tuple[str, float]]:
    """(kind, value): seconds of the run's wall time, or the number of a file replacement to die in."""
    generator = random.Random(seed)
    times = [("time", generator.uniform(0.0, reference.seconds)) for _ in range(n)]
    numbers = range(1, reference.replacements + 1, replacements_every) if replacements_every else ()
    return times + [(generator.choice(("before", "after")), float(number)) for number in numbers]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--replacements-every", type=int, default=1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    reference, outcomes = chaos(n=arguments.n, seed=arguments.seed, replacements_every=arguments.replacements_every)
    bad = [outcome for outcome in outcomes if outcome.different]
    summary = {
        "seed": arguments.seed,
        "unbroken_seconds": round(reference.seconds, 1),
        "file_replacements": reference.replacements,
        "killed": sum(outcome.was_killed for outcome in outcomes),
        "different": len(bad),
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(summary, indent=1) + "\n")
    print(f"{summary['killed']} kills, {len(bad)} runs that differ")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()

"""What a training step of the quickstart spends its time on: `python -m benchmarks.step_profile` (under a minute).

Runs Sightline's side of `benchmarks.versus_trl` alone, on the same rows, weights and processor cores, and gives the
median milliseconds of each phase of a step and of its parts. docs/benchmarks.md has the result.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.speed.comparison import PHASE_FIRST
from benchmarks.speed.report import machine_facts
from benchmarks.speed.side import SideResult
from benchmarks.versus_trl import pin_to_cores, prepared_work, run_module


def main() -> None:
    arguments = parse_arguments()
    pin_to_cores(arguments.threads)
    facts = machine_facts("benchmarks.step_profile", sys.argv[1:])
    work = prepared_work(arguments.work, arguments.threads)
    out = work / "profile.json"
    options = {"--work": work, "--seed": 1, "--steps": arguments.steps, "--threads": arguments.threads, "--out": out}
    words = [str(word) for option in options.items() for word in option]
    run_module(sys.executable, "profiled_side", words, threads=arguments.threads, log=work / "profile.log")
    side, calls = SideResult.read(out), json.loads(out.with_suffix(".parts.json").read_text())
    text = json.dumps(facts | {"packages": side.packages} | milliseconds(side, calls), indent=1)
    print(text)
    if arguments.output is not None:
        arguments.output.write_text(text + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("runs/versus-trl"))
    parser.add_argument("--output", type=Path, help="file for the result, such as benchmarks/results/step_profile.json")
    return parser.parse_args()


def milliseconds(
    side: SideResult, calls: Mapping[str, Sequence[tuple[float, float]]]
) -> dict[str, Mapping[str, float]]:
    """The median over the steps from `PHASE_FIRST` on, by phase and by part."""
    steps = range(PHASE_FIRST, len(side.step_ends))
    of_parts = {
        part: [sum(length for start, length in own if _within(side, step, start)) for step in steps]
        for part, own in calls.items()
    }
    of_phases = {name: [side.phases[step - 1][name] for step in steps] for name in side.phases[0]}
    return {
        "phase_ms": {name: _median_ms(seconds) for name, seconds in of_phases.items()},
        "part_ms": {name: _median_ms(seconds) for name, seconds in of_parts.items()},
    }


def _within(side: SideResult, step: int, moment: float) -> bool:
    return side.step_ends[step - 1] <= moment < side.step_ends[step]


def _median_ms(seconds: Sequence[float]) -> float:
    return round(1000 * median(seconds), 1)


if __name__ == "__main__":
    main()

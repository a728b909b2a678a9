"""What the commands cost that answer at once: `python -m benchmarks.commands`.

Everything is measured in turn, round after round, as is a bare interpreter of the same environment. Prints the median
of each, and writes them with `--output benchmarks/results/commands.json`.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import sightline_startup

from benchmarks.speed.report import machine_facts
from rl_core.config.loading import load_config
from rl_core.planning.rules import check_config
from rl_core.sources.counting import CountingSource
from rl_core.sources.scenes import render_scene

QUICKSTART = Path("configs/quickstart.yaml")
SCENES = CountingSource(type="counting", size=1000, scene_seed=1)
BARE = "python -c pass"
PROCESSES = {
    BARE: ["-c", "pass"],
    f"sightline plan {QUICKSTART}": ["-m", "flows.cli", "plan", str(QUICKSTART)],
    "sightline reproduce qwen2_5_vl_7b_geo3k_dapo --dry-run": [
        *("-m", "flows.cli", "reproduce", "qwen2_5_vl_7b_geo3k_dapo", "--dry-run")
    ],
}


def render() -> None:
    for index in range(SCENES.size):
        render_scene(SCENES.scene(index), image_size=SCENES.image_size)


CALLS: Mapping[str, Callable[[], object]] = {
    "check_config of the quickstart": lambda: check_config(load_config(QUICKSTART)),
    f"{SCENES.size} scenes, drawn and rendered": render,
    "sightline_startup, part of every interpreter's start": sightline_startup.close_binary_gaps,
}


def main() -> None:
    arguments = parse_arguments()
    facts = machine_facts("benchmarks.commands", sys.argv[1:])
    rounds = [measured() for _ in range(arguments.rounds)]
    seconds = {name: median(one[name] for one in rounds) for name in rounds[0]}
    for name, value in seconds.items():
        print(f"{value:8.4f} s {value / seconds[BARE]:8.2f} x {BARE}   {name}")
    if arguments.output:
        arguments.output.write_text(json.dumps(as_json(seconds, facts, arguments.rounds), indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def measured() -> dict[str, float]:
    """Name -> seconds of the processor, not of the clock: other programs may run at the same time."""
    return {name: seconds_of_process(arguments) for name, arguments in PROCESSES.items()} | {
        name: seconds_of_call(call) for name, call in CALLS.items()
    }


def seconds_of_process(arguments: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def seconds_of_call(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def as_json(seconds: Mapping[str, float], facts: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    ratios = {name: round(value / seconds[BARE], 3) for name, value in seconds.items()}
    rounded = {name: round(value, 5) for name, value in seconds.items()}
    return {**facts, "rounds": rounds, "processor_seconds": rounded, f"times {BARE}": ratios}


if __name__ == "__main__":
    main()

"""Two workers with one thread each against one such worker: `python -m benchmarks.workers` (fifteen minutes).

Both train the quickstart's model from the same rows and cold-started weights, with the same batch, on the same two
processor cores: one worker in the process of the run, and two workers in a Ray cluster, each with a whole vLLM, which
add up their gradients over gloo. A model so small is not worth spreading, so both have all weights; `--sharding full`
spreads them (FSDP2). They run in turn, every run in a process of its own. `--set` trains another model, such as a
larger one, whose arithmetic counts for more against what a pass and a decode step take whatever their size.

Two cores share caches, memory and clock, so each does less when the other works too. Therefore two runs of one worker,
which have nothing to do with each other, are run side by side as well: what they do together is the most that two
workers could. Writes a file with `--output`.
"""

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.speed.comparison import PHASE_FIRST
from benchmarks.speed.report import machine_facts
from benchmarks.speed.side import SideResult
from benchmarks.versus_trl import pin_to_cores, prepared_work, run_module

NUMBERS: Final = (1, 2)

_OTHER_SEED: Final = 1000
"""What is added to the seed of the second of two runs side by side."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """The runs of one seed.

    Attributes:
        workers: Number of workers -> their run.
        apart: Two runs of one worker, side by side.
    """

    workers: dict[int, SideResult]
    apart: list[SideResult]

    def ratio(self, steps: int) -> float:
        """How many times as fast as one worker two are."""
        return speed(self.workers[2], steps) / speed(self.workers[1], steps)

    def most(self, steps: int) -> float:
        """How many times as much two workers do that have nothing to do with each other."""
        return sum(speed(side, steps) for side in self.apart) / speed(self.workers[1], steps)


def main() -> None:
    arguments = parse_arguments()
    pin_to_cores(max(NUMBERS))
    facts = machine_facts("benchmarks.workers", sys.argv[1:])
    work = prepared_work(arguments.work, max(NUMBERS), arguments.settings)
    rounds = []
    for number, seed in enumerate(arguments.seeds):
        order = NUMBERS[:: -1 if number % 2 else 1]
        found = {workers: run(work, workers, seed, arguments) for workers in order}
        rounds.append(Round(workers=found, apart=run_apart(work, seed, arguments)))
        ratio, most = rounds[-1].ratio(arguments.steps), rounds[-1].most(arguments.steps)
        print(f"seed {seed}: {ratio:.2f} times as fast; two runs apart do {most:.2f} times as much", flush=True)
    text = json.dumps(facts | summary(rounds, arguments.steps), indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--work", type=Path, default=Path("runs/versus-trl"))
    parser.add_argument("--sharding", choices=["none", "full"], default="none")
    parser.add_argument(
        "--set",
        dest="settings",
        nargs="*",
        default=[],
        metavar="KEY=VALUE",
        help="other values of the quickstart's config, in all runs, such as the sizes of a larger model",
    )
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def run(work: Path, workers: int, seed: int, arguments: argparse.Namespace) -> SideResult:
    """One training with this many workers."""
    out = work / f"workers-{workers}-{seed}.json"
    options = {
        "--work": work,
        "--seed": seed,
        "--steps": arguments.steps,
        "--threads": 1,
        "--out": out,
        "--workers": workers,
        "--sharding": arguments.sharding,
    }
    words = [str(word) for option in options.items() for word in option]
    words += ["--set", *arguments.settings]
    run_module(sys.executable, "sightline_side", words, threads=1, log=out.with_suffix(".log"))
    return SideResult.read(out)


def run_apart(work: Path, seed: int, arguments: argparse.Namespace) -> list[SideResult]:
    """Two trainings with one worker each, at the same time."""
    with ThreadPoolExecutor() as pool:
        return [*pool.map(lambda own: run(work, 1, own, arguments), (seed, seed + _OTHER_SEED))]


def speed(side: SideResult, steps: int) -> float:
    """Samples a second from step `PHASE_FIRST` on, when everything has started."""
    return side.samples_per_second(PHASE_FIRST, steps)


def summary(rounds: list[Round], steps: int) -> dict[str, Any]:
    """The ratios of each round and their medians, and the median seconds of each phase."""
    ratios, most = ([of(one, steps) for one in rounds] for of in (Round.ratio, Round.most))
    arrangements = {
        "1 worker": [one.workers[1] for one in rounds],
        "2 workers": [one.workers[2] for one in rounds],
        "2 runs of 1 worker": [side for one in rounds for side in one.apart],
    }
    return {
        "packages": rounds[0].workers[1].packages,
        "ratios": [round(ratio, 3) for ratio in ratios],
        "median_ratio": round(median(ratios), 3),
        "ratios_of_two_runs_apart": [round(ratio, 3) for ratio in most],
        "median_ratio_of_two_runs_apart": round(median(most), 3),
        "phase_seconds": {name: phases(sides) for name, sides in arrangements.items()},
        "last_rewards": {
            f"{number} worker(s)": [one.workers[number].rewards[-1] for one in rounds] for number in NUMBERS
        },
    }


def phases(sides: list[SideResult]) -> dict[str, float]:
    """The median seconds of each phase of a step."""
    return {
        name: round(median(step[name] for side in sides for step in side.phases[PHASE_FIRST - 1 :]), 3)
        for name in sides[0].phases[0]
    }


if __name__ == "__main__":
    main()

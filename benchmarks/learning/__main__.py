"""What is learned over seeds: `python -m benchmarks.learning NAME... [--seeds 1-5] [--picture FILE]`.

Every NAME, of benchmarks/learning/experiments.py, is trained with every seed, one run after the other, and its file in
the folder of results gets the held-out accuracies of each. A seed that is in the file is not trained again, so that the
command can be repeated, and commands for other seeds can run at the same time. The picture shows the mean over seeds of
each name, and the range between the lowest and the highest seed.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.learning.experiments import EXPERIMENTS, Experiment
from benchmarks.learning.results import Curve, Learned, plot
from benchmarks.speed.report import machine_facts
from flows.seed_group import parse_seeds
from rl_core.run_directory import RunDirectory

RESULTS = Path(__file__).parents[1] / "results" / "learning"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=EXPERIMENTS, metavar="NAME")
    parser.add_argument("--seeds", type=parse_seeds, default="1-5", help="such as 1-5 or 1,3,7-9")
    parser.add_argument("--work", type=Path, default=Path("runs-learning"), help="folder of the runs")
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    learned = [trained(name, arguments.seeds, arguments.work) for name in arguments.names]
    if arguments.picture:
        plot(learned, arguments.picture)


def trained(name: str, seeds: Sequence[int], work: Path) -> Learned:
    """What an experiment has learned with each seed; those that are missing are trained."""
    file = RESULTS / f"{name}.json"
    learned = Learned.read(file)
    for seed in seeds:
        if seed not in learned.curves:
            facts = machine_facts("benchmarks.learning", sys.argv[1:])
            folder = _train(name, EXPERIMENTS[name], seed, work)
            learned = Learned.read(file)  # another command may have added seeds meanwhile
            learned.curves[seed] = Curve.of(folder, commit=facts["commit"], cpu=facts["cpu"])
            learned.write(file)
        sys.stdout.write(f"{name}, seed {seed}: {learned.curves[seed].accuracy[-1]:.3f}\n")
    sys.stdout.write(f"{name}: {learned.conclusion}\n")
    return learned


def _train(name: str, experiment: Experiment, seed: int, work: Path) -> RunDirectory:
    """Train in a process of its own. Raises CalledProcessError; what it printed is in the folder's log."""
    runs = work / f"{name}-{seed}"
    runs.mkdir(parents=True, exist_ok=True)
    changes = [*experiment.overrides, f"seed={seed}", f"cluster.threads={experiment.threads}"]
    command = [sys.executable, "-m", "flows.cli", "train", str(experiment.config), *changes, f"--runs-dir={runs}"]
    with (runs / "log").open("w") as log:
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=True)
    (metrics,) = runs.glob("*/metrics.jsonl")
    return RunDirectory(metrics.parent)


if __name__ == "__main__":
    main()

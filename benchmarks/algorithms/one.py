"""One run in a process of its own; without a recipe it prepares what all runs share.

python -m benchmarks.algorithms.one --work WORK [--recipe RECIPE --seed SEED --out FOLDER]
"""

import argparse
from pathlib import Path

from benchmarks.algorithms.race import train
from benchmarks.algorithms.recipes import CONFIG, RECIPES
from benchmarks.starting_point import make_starting_point
from rl_core.config.loading import load_config
from rl_core.run_directory import RunDirectory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--recipe", choices=RECIPES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    prepared = RunDirectory(arguments.work / "prepared")
    if arguments.recipe is None:
        make_starting_point(load_config(CONFIG), prepared)
        return
    folder = arguments.work / f"{arguments.recipe}-{arguments.seed}"
    curve = train(arguments.recipe, arguments.seed, prepared=prepared, folder=folder)
    curve.write(arguments.out or arguments.work)
    print(curve)


if __name__ == "__main__":
    main()

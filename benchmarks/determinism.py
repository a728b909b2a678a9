"""What equal runs have in common, and what deterministic algorithms cost: `python -m benchmarks.determinism`.

Trains one optimizer batch of the quickstart's size (16 prompts with 8 responses each) again and again from the same
weights, with other processes on every core, and counts the different outcomes: within one number of threads, where
there must be one, and between numbers of threads, where sums are cut in other places. Then compares the processor time
of an update with PyTorch's deterministic algorithms and without, in alternation. Writes a file with `--output`.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.speed.report import machine_facts
from rl_core.training import trainer
from rl_core.types import TrainGroup
from tests.rl_core.busy import busy_cores, threads_of_torch
from tests.rl_core.workers.trials import Trials, made_up_groups, prepare, quickstart

THREADS = (1, 2, 4, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--lengths", type=int, nargs="+", default=[12, 200], help="longest response, in tokens")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    facts = machine_facts("benchmarks.determinism", sys.argv[1:]) | {"torch": torch.__version__}
    with tempfile.TemporaryDirectory() as folder:
        results = [measured(length, arguments, Path(folder) / str(length)) for length in arguments.lengths]
    for result in results:
        print(json.dumps(result))
    if arguments.output:
        arguments.output.write_text(json.dumps(facts | {"results": results}, indent=1) + "\n")


def measured(longest: int, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    config = quickstart(longest=longest)
    run = prepare(config, folder)
    groups, trials = made_up_groups(run, longest=longest), Trials(config, run)
    with busy_cores():
        outcomes = {threads: outcomes_of(trials, groups, threads, arguments.repeats) for threads in THREADS}
    return {
        "longest_response": longest,
        "repeats": arguments.repeats,
        "different_outcomes_with_threads": {threads: len(set(found)) for threads, found in outcomes.items()},
        "different_outcomes_between_threads": len({found[0] for found in outcomes.values()}),
        "deterministic_to_plain_processor_time": cost(trials, groups, arguments.rounds),
    }


def outcomes_of(trials: Trials, groups: Sequence[TrainGroup], threads: int, repeats: int) -> list[str]:
    with threads_of_torch(threads):
        return [json.dumps(trials.outcome(groups, steps=1), sort_keys=True) for _ in range(repeats)]


def cost(trials: Trials, groups: Sequence[TrainGroup], rounds: int) -> float:
    """The median of the ratios of processor time, with and without, in alternation."""
    ratios = []
    for _ in range(rounds):
        deterministic = seconds(trials, groups)
        with patch.object(trainer, "deterministic_on_cpu", as_it_is):
            ratios.append(deterministic / seconds(trials, groups))
    return round(median(ratios), 3)


def seconds(trials: Trials, groups: Sequence[TrainGroup]) -> float:
    start = time.process_time()
    trials.outcome(groups, steps=1)
    return time.process_time() - start


@contextmanager
def as_it_is(_: torch.device) -> Iterator[None]:
    yield


if __name__ == "__main__":
    main()

"""Kills workers and machines of runs in a Ray cluster, and compares what the runs leave with an unbroken run.

    python -m tests.e2e.cluster_chaos --runs 2 --seed 1 --output result.json

A cluster of two machines, each a raylet of this one, which the runs join; one worker on each. Every run is hit once in
each epoch but the last: SIGKILL to a worker or to the second machine's raylet, at a moment drawn from the seed in
generation, update or checkpoint. A machine that was killed is replaced, and then everything that the run leaves must be
equal to the bit. In a first run it is not replaced at first: training must go on with the worker that is left
(`cluster.min_workers`), and with both after another machine has come, with the numbers of the unbroken run up to the
first loss.

Each run must come to its end with every step recorded once, say within ten seconds which worker has died and of what,
leave no worker behind, and leave the cluster as it is. Exits 1 if one does not.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from tasks.cache.software import code_version
from tests.e2e.cluster_kills import (
    Kill,
    Killer,
    Noticed,
    drawn_kills,
    kills_that_leave_one_worker,
    log_of,
    seconds_of_phases,
    workers_left,
)
from tests.e2e.processes import run_of
from tests.e2e.runs import environment, fingerprint
from tests.machines import Machines
from tests.results import differences
from tests.servers import started, wait_until

EPOCHS: Final = 9
STEPS_PER_EPOCH: Final = 2
STEPS: Final = EPOCHS * STEPS_PER_EPOCH
TIMEOUT: Final = 1500.0
LONGEST_NOTICE: Final = 10.0

SETTINGS: Final = (
    "cold_start=null",
    "reward={function: length, kwargs: {target_length: 24, max_length: 48}}",
    f"data.train.size={8 * STEPS_PER_EPOCH}",
    "data.validation.size=2",
    "data.rollout_batch_size=8",
    "rollout={n: 8, max_response_length: 48}",
    f"trainer={{total_epochs: {EPOCHS}, save_freq: 1, val_freq: -1}}",
    "evaluation={modes: [greedy], accuracy_key: overall}",
)
"""The small config with steps that are long enough to be hit, and a reward without which all gradients would be 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A run that was hit.

    Attributes:
        noticed: How it took each kill.
        seconds: Its wall time.
        different: Its results that differ from those of the unbroken run.
        faults: What else it should not have done.
    """

    noticed: Sequence[Noticed]
    seconds: float
    different: Sequence[str] = ()
    faults: Sequence[str] = field(default_factory=list)

    @property
    def is_bad(self) -> bool:
        return bool(self.different or self.faults)


def section(machines: Machines, *, min_workers: int | None) -> str:
    fewest = "" if min_workers is None else f", min_workers: {min_workers}, wait_for_all_seconds: 40"
    return f"cluster={{nodes: 2, devices: 1, device: cpu, address: '{machines.address}'{fewest}}}"


def run_with(
    machines: Machines, folder: Path, kills: Sequence[Kill], unbroken: RunDirectory | None, *, min_workers: int | None
) -> tuple[RunDirectory, list[Noticed], list[str]]:
    """A run to its end; how it took the kills, and its faults."""
    folder.mkdir()
    arguments, run = run_of(folder, *SETTINGS, section(machines, min_workers=min_workers))
    variables = environment(folder) | machines.environment | {"OMP_NUM_THREADS": "1"}
    output = folder / "output.txt"
    killer = Killer(machines, run, {} if unbroken is None else seconds_of_phases(unbroken))
    with started(arguments, variables, output) as process:
        try:
            noticed = [killer.do(kill, lambda: process.poll() is not None) for kill in kills]
            wait_until(lambda: process.poll() is not None, "the run ends", seconds=TIMEOUT)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log_of(output)}\n{log_of(run.log)}") from error
    if killer.other is not None:
        killer.other.end()
    return run, noticed, [*faults_of(run, machines, noticed, status=process.returncode)]


def faults_of(run: RunDirectory, machines: Machines, noticed: Sequence[Noticed], *, status: int) -> list[str]:
    """What a run should not have done."""
    steps = [line["step"] for line in read(run.metrics)]
    wrong = {
        f"it exited with {status}": status != 0,
        f"metrics.jsonl has the steps {steps}": steps != [*range(1, STEPS + 1)],
        f"{len(workers_left(machines))} worker(s) are left": bool(workers_left(machines)),
        "the cluster has ended": not machines.is_there,
        **{f"it noticed {late} late": late.seconds > LONGEST_NOTICE for late in noticed},
    }
    return [fault for fault, holds in wrong.items() if holds]


def hit(machines: Machines, folder: Path, kills: Sequence[Kill], unbroken: RunDirectory) -> Outcome:
    """A run whose machines are replaced: everything is equal."""
    began = time.monotonic()
    run, noticed, faults = run_with(machines, folder, kills, unbroken, min_workers=None)
    different = differences(fingerprint(unbroken), fingerprint(run))
    return Outcome(noticed=noticed, seconds=round(time.monotonic() - began), different=different, faults=faults)


def hit_without_replacement(machines: Machines, folder: Path, kills: Sequence[Kill], unbroken: RunDirectory) -> Outcome:
    """A run that goes on with one worker for a while: it is equal up to the first loss."""
    began = time.monotonic()
    run, noticed, faults = run_with(machines, folder, kills, unbroken, min_workers=1)
    until = kills[0].step - 1
    same = unbroken.metrics.read_bytes().splitlines()[:until] == run.metrics.read_bytes().splitlines()[:until]
    recorded = [event["workers"] for event in read(run.events) if event["kind"] == "workers-changed"]
    if recorded != [1, 2]:
        faults.append(f"it recorded these numbers of workers: {recorded}")
    different = [] if same else ["metrics.jsonl before the first loss"]
    return Outcome(noticed=noticed, seconds=round(time.monotonic() - began), different=different, faults=faults)


def summary_of(outcomes: Sequence[Outcome], command_line: str) -> dict[str, object]:
    """What is committed of a call of this script."""
    noticed = [one for outcome in outcomes for one in outcome.noticed]
    return {
        "command": command_line,
        "code": str(code_version()),
        "cores": os.cpu_count(),
        "kills": len(noticed),
        "most_seconds_to_notice": max((one.seconds for one in noticed), default=0.0),
        "different": sum(bool(outcome.different) for outcome in outcomes),
        "faults": sum(len(outcome.faults) for outcome in outcomes),
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }


def chaos(root: Path, *, runs: int, seed: int, output: Path | None) -> list[Outcome]:
    """All runs; what came out so far is written after each of them."""
    outcomes: list[Outcome] = []
    before = json.loads(output.read_text())["runs"] if output and output.exists() else []
    with Machines() as machines:
        unbroken, _, faults = run_with(machines, root / "unbroken", [], None, min_workers=None)
        assert not faults, faults
        print(f"unbroken: {seconds_of_phases(unbroken)}", flush=True)
        for number in range(runs + 1):
            random = Random(f"{seed} {number}")
            if number == 0:
                kills = kills_that_leave_one_worker(random, steps_per_epoch=STEPS_PER_EPOCH)
                outcome = hit_without_replacement(machines, root / f"{number}", kills, unbroken)
            else:
                kills = drawn_kills(random, epochs=EPOCHS, steps_per_epoch=STEPS_PER_EPOCH)
                outcome = hit(machines, root / f"{number}", kills, unbroken)
            print(outcome, flush=True)
            outcomes.append(outcome)
            if output:
                found = summary_of(outcomes, f"python -m tests.e2e.cluster_chaos --runs {runs} --seed {seed}")
                output.write_text(json.dumps({"runs": [*before, found]}, indent=1) + "\n")
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as root:
        outcomes = chaos(Path(root), runs=arguments.runs, seed=arguments.seed, output=arguments.output)
    raise SystemExit(1 if any(outcome.is_bad for outcome in outcomes) else 0)


if __name__ == "__main__":
    main()

"""Draws sequences of commands that start, kill, lengthen, change, mend, fork and clean runs, and looks after each of
them whether anything finished was lost.

    python -m tests.e2e.sequences --n 60 --seed 1 --output result.json

What must hold after each command (`Ledger`): a stage that was ever finished is there, in its run or in its folder
`earlier`, with every file unchanged; no line of a step that a checkpoint has, and no rollout file of one, was changed
or removed; and the manifests of a run have the digests that follow from its own folder: its config, the copies of its
files, and its amendments. Exits 1 where one does not hold; the folder of such a sequence is kept in `--evidence`.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rl_core.checkpoints.store import CheckpointStore
from rl_core.config.loading import load_config
from rl_core.digests import FileRecord, hash_file
from rl_core.files import atomic_write_json
from rl_core.records.metrics_log import lines_until
from rl_core.run_directory import RunDirectory
from tasks.cache.amendments import read_amendments
from tasks.cache.kept_files import files_of_run
from tasks.cache.manifests import altered_output, read_manifests
from tasks.cache.software import code_version
from tasks.cache.stages import stage_digests
from tests.e2e.runs import REPOSITORY, SMALL, command, environment

REWARD = """
def score(sample):
    return {{"overall": {right} * (sample.ground_truth_text in sample.response), "accuracy": 0.0}}
"""
TIMEOUT = 900


@dataclass
class Ledger:
    """What was ever seen finished in the folder of runs."""

    runs_dir: Path
    stages: dict[tuple[str, str, str], dict[str, FileRecord]] = field(default_factory=dict)
    steps: dict[tuple[str, int], tuple[bytes, str]] = field(default_factory=dict)
    killed: set[str] = field(default_factory=set)
    """Runs whose last command was killed: their configs may ask for more steps than the results that they have."""

    def runs(self) -> list[RunDirectory]:
        folders = sorted(self.runs_dir.iterdir()) if self.runs_dir.is_dir() else []
        return [run for run in map(RunDirectory, folders) if run.config.is_file()]

    def at_work(self) -> set[str]:
        """The run that has written last."""
        runs = [run for run in self.runs() if run.events.is_file()]
        return {run.name for run in sorted(runs, key=lambda run: run.events.stat().st_mtime)[-1:]}

    def look(self) -> list[str]:
        """What does not hold now; then take note of what there is."""
        problems = [*self._lost_stages(), *self._lost_steps(), *self._untraceable()]
        for run in self.runs():
            for manifest in read_manifests(run):
                if not manifest.stage.startswith("train-epoch-"):  # a longer run continues its last epoch
                    outputs = {path: file for path, file in manifest.outputs.items() if path != "metrics.jsonl"}
                    self.stages[run.name, manifest.stage, manifest.digest] = outputs
            for step in range(1, saved_step(run) + 1):
                self.steps[run.name, step] = step_record(run, step)
        return problems

    def forget(self, names: set[str]) -> None:
        """Leave out runs that a command has removed on request."""
        self.stages = {key: value for key, value in self.stages.items() if key[0] not in names}
        self.steps = {key: value for key, value in self.steps.items() if key[0] not in names}

    def _lost_stages(self) -> list[str]:
        problems = []
        for (name, stage, digest), outputs in self.stages.items():
            run = RunDirectory(self.runs_dir / name)
            places = [run, RunDirectory(run.earlier / digest[:12])]
            there = [p for p in places if any(m.stage == stage and m.digest == digest for m in read_manifests(p))]
            if not there:
                problems.append(f"{stage} of {name} is lost")
            elif (altered := altered_output(there[0].root, outputs)) is not None:
                problems.append(f"{stage} of {name}: {altered}")
        return problems

    def _lost_steps(self) -> list[str]:
        runs = {run.name: run for run in self.runs()}
        return [
            f"step {step} of {name} was changed"
            for (name, step), before in self.steps.items()
            if name in runs and step_record(runs[name], step) != before
        ]

    def _untraceable(self) -> list[str]:
        problems = []
        for run in self.runs():
            found = {manifest.stage: manifest.digest for manifest in read_manifests(run)}
            if "report" not in found or run.name in self.killed:
                continue
            config = load_config(run.config)
            digests = stage_digests(config, files_of_run(config, run, is_frozen=True), read_amendments(run))
            others = [stage for stage in found if stage in digests and found[stage] != digests[stage]]
            problems += [
                f"{stage} of {run.name} does not follow from its config, files and amendments" for stage in others
            ]
        return problems


def saved_step(run: RunDirectory) -> int:
    """The step of a run's newest checkpoint."""
    saved = CheckpointStore(run.checkpoints, save_limit=1).complete()
    return saved[-1].step if saved else 0


def step_record(run: RunDirectory, step: int) -> tuple[bytes, str]:
    """The line of a step, and the hash of its rollouts."""
    rollouts = run.rollouts(step)
    return lines_until(run.metrics, step)[-1], hash_file(rollouts) if rollouts.is_file() else ""


@dataclass
class Sequence:
    """One sequence of commands in a folder of its own."""

    home: Path
    draw: random.Random
    done: list[str] = field(default_factory=list)
    length: int = 2
    edits: int = 0

    def __post_init__(self) -> None:
        self.reward.parent.mkdir(parents=True, exist_ok=True)
        self.reward.write_text(REWARD.format(right=1.0))
        self.ledger = Ledger(self.home / "runs")

    @property
    def reward(self) -> Path:
        return self.home / "own.py"

    def play(self, count: int) -> list[str]:
        """Carry out so many commands. Returns what did not hold after one of them."""
        moves: list[Callable[[], None]] = [
            *(self.run, self.run_and_kill, self.lengthen, self.change_operation),
            *(self.edit_and_run, self.edit_and_keep, self.fork, self.report, self.clean),
        ]
        for number in range(count):
            (self.run if number == 0 else self.draw.choice(moves))()
            if problems := self.ledger.look():
                return [f"after {' / '.join(self.done)}: {problem}" for problem in problems]
        return []

    def run(self) -> None:
        self._call("run", *self._config())

    def run_and_kill(self) -> None:
        self.length += self.draw.choice([0, 2])
        self._call("run", *self._config(), kill_after=self.draw.uniform(5.0, 25.0))

    def lengthen(self) -> None:
        self.length += 2
        self._call("run", *self._config())

    def change_operation(self) -> None:
        keys = ["trainer.save_freq=1", "trainer.val_freq=1", "reward.timeout_seconds=30", "rollout.max_num_seqs=8"]
        if run := self._one():
            self._call("run", "--resume", run.name, self.draw.choice(keys))

    def edit_and_run(self) -> None:
        self._edit()
        self._call("run", *self._config())

    def edit_and_keep(self) -> None:
        self._edit()
        self._call("run", *self._config(), "--keep-training", check=False)  # refused for a finished run

    def fork(self) -> None:
        run = self._one()
        saved = CheckpointStore(run.checkpoints, save_limit=1).complete() if run else []
        if run and saved:
            step = self.draw.choice(saved).step
            change = f"actor.optim.lr={self.draw.choice(['2.0e-3', '5.0e-4'])}"
            longer = f"trainer.max_steps={max(self.length, step + 1)}"
            self._call("fork", run.name, "--step", str(step), change, longer)

    def report(self) -> None:
        if run := self._one():
            self._call("report", run.name)

    def clean(self) -> None:
        before = {run.name for run in self.ledger.runs()}
        self._call("clean", "--superseded", "--yes")
        self.ledger.forget(before - {run.name for run in self.ledger.runs()})

    def _edit(self) -> None:
        self.edits += 1
        self.reward.write_text(REWARD.format(right=1.0 + self.edits))

    def _one(self) -> RunDirectory | None:
        runs = self.ledger.runs()
        return self.draw.choice(runs) if runs else None

    def _config(self) -> list[str]:
        changes = (
            *("trainer.val_freq=-1", "evaluation.modes=[greedy]"),
            *(f"tracking.mlflow_uri=sqlite:///{self.home}/mlflow.db", f"reward.function={self.reward}:score"),
            f"trainer.max_steps={self.length}",
        )
        return [str(SMALL), *changes]

    def _call(self, *arguments: str, kill_after: float | None = None, check: bool = True) -> None:
        self.done.append(" ".join(part for part in arguments if not part.startswith(("/", "tracking", "reward.f"))))
        log = self.home / "log.txt"
        with log.open("ab") as output:
            process = subprocess.Popen(
                command(*arguments, "--runs-dir", str(self.home / "runs")),
                env=environment(self.home),
                cwd=REPOSITORY,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                process.wait(kill_after or TIMEOUT)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                time.sleep(1.0)  # its workers end with it
                check = kill_after is None
                self.ledger.killed |= self.ledger.at_work()
            else:
                if arguments[0] in ("run", "fork"):
                    self.ledger.killed -= self.ledger.at_work()
        if check:
            assert process.returncode == 0, f"{self.done}: {log.read_text()[-3000:]}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", type=int, default=5)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--evidence", type=Path, default=Path("evidence"))
    asked = parser.parse_args(arguments)
    results = []
    for number in range(asked.seed, asked.seed + asked.n):
        home = Path(tempfile.mkdtemp(prefix="sequence-"))
        sequence = Sequence(home, random.Random(number))
        problems = sequence.play(asked.commands)
        results.append({"seed": number, "commands": sequence.done, "problems": problems})
        sys.stdout.write(json.dumps(results[-1]) + "\n")
        sys.stdout.flush()
        if problems:
            shutil.copytree(home, asked.evidence / f"sequence-{number}", dirs_exist_ok=True)
        shutil.rmtree(home)
        if asked.output:
            atomic_write_json(asked.output, {"code": str(code_version()), "sequences": results})
    return int(any(each["problems"] for each in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Holds a run that is started again against what lay in its folder before: what it promises of going on."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rl_core.checkpoints.manifest import Checkpoint, DamagedCheckpoint, verify
from rl_core.checkpoints.store import CheckpointStore, kept_checkpoints
from rl_core.config.loading import load_config
from rl_core.config.training import TrainerConfig
from rl_core.records.metrics_log import read, readable_steps
from rl_core.run_directory import RunDirectory
from tests.e2e.runs import the_run

_SECONDS_BETWEEN_LOOKS = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Continuation:
    """How a run went on: after which step, with how many done again, and what it should not have done."""

    after: int
    again: int
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Left:
    """What an ended process left of a training.

    Attributes:
        intact: Its intact checkpoints, oldest first.
        recorded: The last step in metrics.jsonl.
        events: Number of events.
    """

    intact: list[Checkpoint]
    recorded: int
    events: int

    @property
    def newest(self) -> int:
        """Step of its newest intact checkpoint; 0 without one."""
        return self.intact[-1].step if self.intact else 0


class Watched:
    """The only run below a folder, which is ended and started again.

    Attributes:
        continued: How it went on each time that it came so far.
    """

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir
        self._left: Left | None = None
        self._removed: set[int] = set()
        self.continued: list[Continuation] = []

    def until(self, ended: Callable[[], bool], seconds: float) -> bool:
        """Look at the run's checkpoints until `ended` or the time is over. Returns whether it ended."""
        deadline = time.monotonic() + seconds
        while not ended():
            if time.monotonic() > deadline:
                return False
            self._look()
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return True

    def has_recorded(self, step: int) -> bool:
        """Whether the run has come so far."""
        run = self._run()
        return run is not None and step in readable_steps(run.metrics)

    def note(self, output: str, *, came_to_its_end: bool) -> None:
        """Say how the process that has just ended had gone on, by what it printed among others."""
        if self._left is not None:
            self._judge(self._left, output, came_to_its_end=came_to_its_end)
        self._removed = set()
        self._left = left_by(self._run()) if self._run() else None

    def _judge(self, left: Left, output: str, *, came_to_its_end: bool) -> None:
        run = self._run()
        assert run is not None, "the run's folder is gone"
        events = read(run.events)[left.events :]
        told = [event for event in events if event["kind"] == "training-continues"]
        faults = [f"checkpoint {step} was deleted" for step in sorted(self._removed)]
        if len(told) == 1:
            after, again = told[0]["step"], told[0]["again"]
            faults += faults_of(left, after, again, trainer_of(run), output)
            self.continued.append(Continuation(after=after, again=again, faults=faults))
        elif faults or len(told) > 1 or (came_to_its_end and self._should_tell(left, run)):
            faults += [f"it was told {len(told)} times where training goes on"]
            self.continued.append(Continuation(after=-1, again=0, faults=faults))

    def _should_tell(self, left: Left, run: RunDirectory) -> bool:
        """There was a training, and it was not at its end."""
        last = max(readable_steps(run.metrics))
        return (left.newest > 0 or left.recorded > 0) and left.newest < last

    def _look(self) -> None:
        """Note the checkpoints that are gone before a newer one is there, apart from those that retention removes."""
        run = self._run()
        if self._left is None or run is None or not self._left.intact:
            return
        there = {int(path.name.removeprefix("step-")) for path in run.checkpoints.glob("step-*")}
        if max(there, default=0) > self._left.newest:
            return
        kept = kept_checkpoints(self._left.intact, trainer_of(run).save_limit)
        self._removed |= {checkpoint.step for checkpoint in kept} - there

    def _run(self) -> RunDirectory | None:
        return the_run(self._runs_dir) if any(self._runs_dir.glob("*/config.yaml")) else None


def faults_of(left: Left, after: int, again: int, trainer: TrainerConfig, output: str) -> list[str]:
    """What is wrong with going on after this step."""
    said = f"training continues after step {after}" if after else "training starts again at step 1"
    wrong = {
        f"it went on after step {after} instead of {left.newest}": after != left.newest,
        f"{again} steps are done again and not {left.recorded - left.newest}": again != left.recorded - left.newest,
        f"{again} steps are done again, more than trainer.save_freq {trainer.save_freq}": again > trainer.save_freq,
        f"the terminal does not say: {said}": said not in output,
    }
    return [fault for fault, holds in wrong.items() if holds]


def left_by(run: RunDirectory) -> Left:
    """What lies in a run's folder that nobody writes."""
    complete = CheckpointStore(run.checkpoints, save_limit=1).complete()
    events = read(run.events)
    return Left(
        intact=[checkpoint for checkpoint in complete if _is_intact(checkpoint)],
        recorded=max(readable_steps(run.metrics), default=0),
        events=len(events),
    )


def trainer_of(run: RunDirectory) -> TrainerConfig:
    """How often the run saves, and how many it keeps."""
    return load_config(run.config).trainer


def _is_intact(checkpoint: Checkpoint) -> bool:
    try:
        verify(checkpoint)
    except DamagedCheckpoint:
        return False
    return True

"""Moments at which a worker or a machine of a run in a cluster is killed, and how the run takes it."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, Literal

import psutil

from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from tests.e2e.processes import has_recorded
from tests.machines import Machine, Machines, call_of

Phase = Literal["generation", "update", "checkpoint"]
PHASES: Final[tuple[Phase, ...]] = ("generation", "update", "checkpoint")

What = Literal["worker of the head", "worker of the other machine", "the other machine"]
WORKERS: Final[tuple[What, ...]] = ("worker of the head", "worker of the other machine")

_NOTICED = re.compile(r"worker \d of \d \(process (\d+) on \S+\) ended during (\w+): (.*)")
_LONGEST_CAUSE = 160
_POLL_SECONDS = 0.01
_TIMEOUT = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    """What is killed with SIGKILL, and when: in a phase of a step, after a part of the time that the phase took in the
    unbroken run. `comes_back`: whether another machine takes the place of one that is killed."""

    step: int
    phase: Phase
    part: float
    what: What
    comes_back: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Noticed:
    """How a run took a kill: what its workers were doing, the cause that it names, and the seconds until it did."""

    kill: Kill
    during: str
    cause: str
    seconds: float


def drawn_kills(random: Random, *, epochs: int, steps_per_epoch: int) -> list[Kill]:
    """One in each epoch but the last, since an epoch is tried again twice; a third of them end a machine."""
    return [
        Kill(
            step=random.randint((epoch - 1) * steps_per_epoch + 1, epoch * steps_per_epoch),
            phase=random.choice(PHASES),
            part=round(random.random(), 3),
            what="the other machine" if random.random() < 1 / 3 else random.choice(WORKERS),
        )
        for epoch in range(1, epochs)
    ]


def kills_that_leave_one_worker(random: Random, *, steps_per_epoch: int) -> list[Kill]:
    """A machine goes and none comes in its place; some steps later another one is there, and the worker that was left
    dies."""
    kinds: list[tuple[What, bool]] = [("the other machine", False), ("worker of the head", True)]
    return [
        Kill(
            step=number * steps_per_epoch + 2,
            phase=random.choice(PHASES),
            part=round(random.random(), 3),
            what=what,
            comes_back=comes_back,
        )
        for number, (what, comes_back) in enumerate(kinds)
    ]


class Killer:
    """Kills parts of a cluster at moments of a run."""

    def __init__(self, machines: Machines, run: RunDirectory, seconds: dict[Phase, float]) -> None:
        """Start the other machine.

        Args:
            machines: The cluster.
            run: The run in it.
            seconds: How long the phases take.
        """
        self._machines = machines
        self._run = run
        self._seconds = seconds
        self.other: Machine | None = machines.add()

    def do(self, kill: Kill, has_ended: Callable[[], bool]) -> Noticed:
        """Wait for the moment, kill, and wait until the run says so."""
        self._until(lambda: kill.step == 1 or has_recorded(self._run, kill.step - 1), has_ended)
        if self.other is None:
            self.other = self._machines.add()
        self._wait_for(kill, has_ended)
        time.sleep(kill.part * self._seconds[kill.phase])
        before = len(self._causes())
        self._kill(kill.what, has_ended)
        began = time.monotonic()
        self._until(lambda: len(self._causes()) > before, has_ended)
        seconds = time.monotonic() - began
        during, cause = self._causes()[before]
        if kill.what == "the other machine":
            self.other = self._machines.add() if kill.comes_back else None
        return Noticed(kill=kill, during=during, cause=cause[:_LONGEST_CAUSE], seconds=round(seconds, 1))

    def _kill(self, what: What, has_ended: Callable[[], bool]) -> None:
        assert self.other is not None
        if what == "the other machine":
            self.other.kill()
            return
        machine = self._machines.head if what == "worker of the head" else self.other
        found: list[psutil.Process] = []
        while not found:  # a title cannot be read while it is written
            assert not has_ended(), "the run has ended before it was killed"
            found = machine.workers
        found[0].kill()

    def _wait_for(self, kill: Kill, has_ended: Callable[[], bool]) -> None:
        """Wait for the phase, or until the run is past it: on a busy machine it may be over before it is seen."""

        def is_over() -> bool:
            return has_recorded(self._run, kill.step)

        self._until(lambda: is_over() or self._generates(), has_ended)  # the workers are new after another kill
        if kill.phase != "generation":
            self._until(lambda: is_over() or not self._generates(), has_ended)
        if kill.phase == "checkpoint":
            self._until(lambda: self._writes_checkpoint(kill.step) or has_recorded(self._run, kill.step + 1), has_ended)

    def _generates(self) -> bool:
        machines = filter(None, (self._machines.head, self.other))
        return any(call_of(worker) == "generate" for machine in machines for worker in machine.workers)

    def _writes_checkpoint(self, step: int) -> bool:
        """Or has just written it."""
        return any(self._run.checkpoints.glob(f"*step-{step:06d}*"))

    def _causes(self) -> list[tuple[str, str]]:
        """What the run has said about each worker that has died: during which call, and why. It says it several
        times."""
        if not self._run.log.is_file():
            return []
        lines = self._run.log.read_text(errors="replace").splitlines()
        found: dict[str, tuple[str, str]] = {}
        for match in filter(None, map(_NOTICED.search, lines)):
            found.setdefault(match.group(1), (match.group(2), match.group(3)))
        return [*found.values()]

    def _until(self, holds: Callable[[], bool], has_ended: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _TIMEOUT
        while not holds():
            assert not has_ended(), "the run has ended before it was killed"
            assert time.monotonic() < deadline, f"waited {_TIMEOUT:g} s for the moment of a kill"
            time.sleep(_POLL_SECONDS)


def seconds_of_phases(run: RunDirectory) -> dict[Phase, float]:
    """How long the phases of a step take, from the timings of an unbroken run."""
    timings = read(run.timings)[1:]  # the first step starts the generators

    def mean(*names: str) -> float:
        return sum(float(line.get(f"{name}_s", 0.0)) for line in timings for name in names) / len(timings)

    return {
        "generation": mean("generate"),
        "update": mean("old_log_probs", "update", "forward_backward", "optimizer"),
        "checkpoint": 0.1,
    }


def workers_left(machines: Machines) -> list[psutil.Process]:
    """Workers in the cluster, of which there is none after a run."""
    return [worker for machine in machines.all for worker in machine.workers]


def log_of(path: Path) -> str:
    """The end of what a process has printed, for a message."""
    return path.read_text(errors="replace")[-4000:]

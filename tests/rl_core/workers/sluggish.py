"""Ranks in real actors that sleep or die in one of their duties; see test_actor_group.py."""

import os
import signal
import time
from typing import Literal

from rl_core.progress import TALLY
from rl_core.workers.messages import RankOpening
from rl_core.workers.rank_actor import RankActor

Duty = Literal["willing", "late process", "late model", "hanging", "slow", "bereft", "dying"]
"""What a rank does: every call at once; its process never answers; it never has its model; it never ends a call; it
takes 6 s for a call, in which it computes; it misses a rank that dies, and raises an error before that death is known;
it dies in a call."""


class Sluggish(RankActor):
    """A rank that has nothing to load."""

    def __init__(self, duty: Duty) -> None:
        if duty == "late process":
            time.sleep(600)
        super().__init__()
        self._duty = duty

    def _open(self, message: RankOpening) -> None:
        if self._duty == "late model":
            reads_from_a_dead_disk()
        self._worker = Worker(self._duty)


class Worker:
    """A worker that has nothing to compute."""

    policy_version = 0

    def __init__(self, duty: Duty) -> None:
        self._duty = duty

    def update(self, batch: object) -> None:
        if self._duty == "hanging":
            sleeps_in_an_update()
        if self._duty == "slow":
            for _ in range(12):
                time.sleep(0.5)
                TALLY.passed += 100
        self._ends_badly()

    def write_snapshot(self, folder: object) -> None:
        if self._duty == "hanging":
            sleeps_in_a_snapshot()
        self._ends_badly()

    def _ends_badly(self) -> None:
        if self._duty == "bereft":
            raise RuntimeError("Connection closed by peer")
        if self._duty == "dying":
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)


def reads_from_a_dead_disk() -> None:
    time.sleep(600)


def sleeps_in_an_update() -> None:
    time.sleep(600)


def sleeps_in_a_snapshot() -> None:
    time.sleep(600)

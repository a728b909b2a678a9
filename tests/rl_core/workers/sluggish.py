"""Ranks in real actors that sleep or die in one of their duties; see test_actor_group.py."""

import os
import signal
import time

from rl_core.workers.messages import RankOpening
from rl_core.workers.rank_actor import RankActor


class Willing(RankActor):
    """Has nothing to load, and does every call at once."""

    def _open(self, message: RankOpening) -> None:
        self._worker = AtOnce()


class LateProcess(Willing):
    """Its process does not answer."""

    def __init__(self) -> None:
        time.sleep(600)


class LateModel(Willing):
    """It never has its model."""

    def _open(self, message: RankOpening) -> None:
        reads_from_a_dead_disk()


class Hanging(Willing):
    """It never ends a call."""

    def _open(self, message: RankOpening) -> None:
        self._worker = Asleep()


class Bereft(Willing):
    """It misses a rank that dies, and raises an error before that death is known."""

    def _open(self, message: RankOpening) -> None:
        self._worker = Missing()


class Dying(Willing):
    """It dies in a call."""

    def _open(self, message: RankOpening) -> None:
        self._worker = Killed()


class AtOnce:
    """A worker that has nothing to do."""

    policy_version = 0

    def update(self, batch: object) -> None:
        """Nothing."""

    def write_snapshot(self, folder: object) -> None:
        """Nothing."""


class Asleep(AtOnce):
    """A worker that gets no further."""

    def update(self, batch: object) -> None:
        sleeps_in_an_update()

    def write_snapshot(self, folder: object) -> None:
        sleeps_in_a_snapshot()


class Missing(AtOnce):
    """A worker whose neighbour is gone."""

    def update(self, batch: object) -> None:
        raise RuntimeError("Connection closed by peer")

    def write_snapshot(self, folder: object) -> None:
        raise RuntimeError("Connection closed by peer")


class Killed(AtOnce):
    """A worker that is killed."""

    def update(self, batch: object) -> None:
        dies_soon()

    def write_snapshot(self, folder: object) -> None:
        dies_soon()


def dies_soon() -> None:
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def reads_from_a_dead_disk() -> None:
    time.sleep(600)


def sleeps_in_an_update() -> None:
    time.sleep(600)


def sleeps_in_a_snapshot() -> None:
    time.sleep(600)

"""Ranks in real actors that sleep in one of their duties; see test_gang.py."""

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


def reads_from_a_dead_disk() -> None:
    time.sleep(600)


def sleeps_in_an_update() -> None:
    time.sleep(600)


def sleeps_in_a_snapshot() -> None:
    time.sleep(600)

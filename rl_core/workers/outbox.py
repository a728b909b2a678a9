"""The rollouts of a generation on their way from the thread that generates to the thread that sends them."""

import threading
from typing import Final

from rl_core.progress import TALLY
from rl_core.types import Rollout
from rl_core.workers.messages import Taken

_GATHERING_SECONDS: Final = 0.1
"""How long a message waits for further rollouts. In each decode step a few responses end, and a message for each step
would take both processes a millisecond, which the generator on a CPU could use."""


class Outbox:
    """Holds finished rollouts until they are taken. Generations are numbered, and each number is larger than the one
    before, so that a message about an earlier generation is told from one about the current one."""

    def __init__(self, *, gathering_seconds: float = _GATHERING_SECONDS) -> None:
        self._gathering_seconds = gathering_seconds
        self._changed = threading.Condition()
        self._number = 0
        self._stopped = 0
        self._rollouts: list[Rollout] = []
        self._has_ended = True

    def begin(self, number: int) -> None:
        """Begin a generation; what nobody took of the one before is dropped."""
        with self._changed:
            self._number, self._rollouts, self._has_ended = number, [], False
            self._changed.notify_all()

    def put(self, rollout: Rollout) -> bool:
        """Put a rollout in. Returns whether more of them are wanted."""
        with self._changed:
            self._rollouts.append(rollout)
            if len(self._rollouts) == 1:
                self._changed.notify_all()
            return self._number > self._stopped

    def end(self) -> None:
        """The generation puts nothing in any more."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def stop(self, number: int) -> None:
        """No more rollouts of this generation are wanted, even if it has not begun yet."""
        with self._changed:
            self._stopped = number

    def take(self, number: int) -> Taken:
        """Wait until the generation of this number has a rollout or its end, then a little longer for further rollouts,
        and take what is there."""
        with self._changed:
            self._changed.wait_for(lambda: self._number >= number and (self._rollouts or self._has_ended))
            self._changed.wait_for(lambda: self._has_ended, timeout=self._gathering_seconds)
            taken = Taken(rollouts=self._rollouts, is_last=self._has_ended, tally=TALLY.copy())
            self._rollouts = []
            return taken

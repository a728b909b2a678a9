"""A request to stop, which takes effect at the end of the current step, or at once if nothing would be lost."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from types import FrameType
from typing import Final

logger = logging.getLogger(__name__)

SOON: Final = "as soon as it can"
"""When a request takes effect, if nothing else is said."""
_SECOND: Final = "a second signal ends it at once, and what is unfinished then is made again"


class Interrupted(RuntimeError):
    """The run stopped on request. `exit_code` follows the shell's convention: 130 after Ctrl-C, 143 after SIGTERM."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}; what was finished is kept")
        self.exit_code = 128 + signum


class StopRequest:
    """Remembers the first signal. The second one has its default effect and ends the process at once.

    Attributes:
        signum: The signal that came; None before it.
        doing: What is being done, in words; empty if that is not known.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.doing: Callable[[], str] = str
        self._breaks_off = False
        self._stops: Callable[[], str] = lambda: SOON
        self._is_delayed = False
        self._answer_is_due = threading.Event()

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """A signal handler for SIGINT and SIGTERM. Raises KeyboardInterrupt within `breaking_off`."""
        self.signum = signum
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._breaks_off:
            raise KeyboardInterrupt
        self._is_delayed = True
        self._answer_is_due.set()

    @contextmanager
    def breaking_off(self) -> Iterator[None]:
        """Let a signal end the block at any point, even in a download, for work that can be repeated and leaves nothing
        incomplete. Cannot be nested. Raises Interrupted if a signal came before the block or inside it."""
        self.raise_if_requested()
        self._breaks_off = True
        try:
            yield
        except KeyboardInterrupt:  # used because a library's `except Exception` does not catch it
            if self.signum is not None:
                logger.warning("%s: stops now; what was begun here is made again", signal.Signals(self.signum).name)
            self.raise_if_requested()
            raise
        finally:
            self._breaks_off = False
        self.raise_if_requested()

    @contextmanager
    def taking_effect(self, when: Callable[[], str]) -> Iterator[None]:
        """Inside the block, a request is answered with when it takes effect ("after this step")."""
        before, self._stops = self._stops, when
        try:
            yield
        finally:
            self._stops = before

    def raise_if_requested(self) -> None:
        """Raises Interrupted if a signal has come."""
        if self.signum is not None:
            raise Interrupted(self.signum)

    @contextmanager
    def answered(self) -> Iterator[None]:
        """Inside the block, a request that does not take effect at once is answered, in the log, with when it does and
        what is being done until then. A thread says it, because a signal may interrupt the writing of another record.
        """
        self._answer_is_due.clear()
        thread = threading.Thread(target=copy_context().run, args=(self._answer,), name="stop", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._answer_is_due.set()
            thread.join()

    def _answer(self) -> None:
        self._answer_is_due.wait()
        if self._is_delayed and self.signum is not None:
            name, doing = signal.Signals(self.signum).name, self.doing()
            logger.warning("%s: stops %s%s; %s", name, self._stops(), doing and f", now {doing}", _SECOND)


@contextmanager
def stopped_by_signals(stop: StopRequest) -> Iterator[None]:
    """Inside the block, Ctrl-C and SIGTERM request a stop; outside the main thread, which alone may do so, nothing
    changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with stop.answered():
        before = {signum: signal.signal(signum, stop.handle) for signum in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)

"""A request to stop, which takes effect at the end of the current step, or at once if nothing would be lost."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

logger = logging.getLogger(__name__)


class Interrupted(RuntimeError):
    """The run stopped on request. `exit_code` follows the shell's convention: 130 after Ctrl-C, 143 after SIGTERM."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}; what was finished is kept")
        self.exit_code = 128 + signum


class StopRequest:
    """Remembers the first signal. The second one has its default effect and ends the process at once."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self._breaks_off = False

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """A signal handler for SIGINT and SIGTERM. Raises KeyboardInterrupt within `breaking_off`."""
        self.signum = signum
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._breaks_off:
            raise KeyboardInterrupt

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
                logger.warning("%s: unfinished preparation is dropped", signal.Signals(self.signum).name)
            self.raise_if_requested()
            raise
        finally:
            self._breaks_off = False
        self.raise_if_requested()

    def raise_if_requested(self) -> None:
        """Raises Interrupted if a signal has come."""
        if self.signum is not None:
            raise Interrupted(self.signum)


@contextmanager
def stopped_by_signals(stop: StopRequest) -> Iterator[None]:
    """Inside the block, Ctrl-C and SIGTERM request a stop; outside the main thread, which alone may do so, nothing
    changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signum: signal.signal(signum, stop.handle) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)

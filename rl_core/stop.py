"""A request to stop, honoured at the end of the current step, or at once where nothing would be lost."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

logger = logging.getLogger(__name__)


class Interrupted(RuntimeError):
    """The run stopped on request, in training after writing a checkpoint. `exit_code` is the shell's: 130 after Ctrl-C,
    143 after SIGTERM."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}; what was finished is kept")
        self.exit_code = 128 + signum


class StopRequest:
    """Remembers the first signal; the second one gets the default treatment and ends the process at once."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self._breaks_off = False

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """A signal handler for SIGINT and SIGTERM.

        Raises:
            KeyboardInterrupt: within `breaking_off`.
        """
        self.signum = signum
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._breaks_off:
            raise KeyboardInterrupt

    @contextmanager
    def breaking_off(self) -> Iterator[None]:
        """Let a signal end the block wherever it is, a download or a tokenizer's training included. For work that
        leaves nothing half done and is made anew; not for nesting.

        Raises:
            Interrupted: a signal came before the block or in it.
        """
        self.raise_if_requested()
        self._breaks_off = True
        try:
            yield
        except KeyboardInterrupt:  # and nothing that a library's `except Exception` would take for its own failure
            if self.signum is not None:
                logger.warning("%s: what is being prepared is dropped", signal.Signals(self.signum).name)
            self.raise_if_requested()
            raise
        finally:
            self._breaks_off = False
        self.raise_if_requested()

    def raise_if_requested(self) -> None:
        """Raises Interrupted when a signal has come."""
        if self.signum is not None:
            raise Interrupted(self.signum)


@contextmanager
def stopped_by_signals(stop: StopRequest) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask the work to stop; a second one ends the process at once. Only the main thread may set
    handlers; a flow that runs elsewhere is stopped by whoever started it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signum: signal.signal(signum, stop.handle) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)

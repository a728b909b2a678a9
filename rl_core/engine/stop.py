"""A request to stop, honoured at the end of the current step."""

import signal
from types import FrameType


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

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """A signal handler for SIGINT and SIGTERM."""
        self.signum = signum
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def raise_if_requested(self) -> None:
        """Raises Interrupted when a signal has come."""
        if self.signum is not None:
            raise Interrupted(self.signum)

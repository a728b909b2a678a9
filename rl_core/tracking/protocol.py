"""What a tracker must do. Trackers follow metrics.jsonl, they do not lead (design contract 10)."""

from collections.abc import Mapping
from typing import Protocol


class Tracker(Protocol):
    """Shows a run's metrics somewhere. An outage raises TrackerUnavailable: a warning now, sent later."""

    def last_step(self) -> int:
        """The last step its server has, -1 for none (step 0 is the validation before training); asked when it opens,
        so resume and late sending need no state."""

    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send one step's metrics."""

    def close(self) -> None:
        """Send what is buffered."""


class TrackerUnavailable(RuntimeError):
    """The tracker's server does not answer; training goes on and the missing steps are sent when it does."""

"""What a tracker must do (docs/architecture.md, "Trackers follow")."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Table = Mapping[str, Sequence[Any]]
"""Column name -> one JSON value a row, all columns of one length."""


STEP_KEY = "progress/step"
"""Metric whose value is the step itself; sent with the last part of a step, it says which steps are complete."""


class Tracker(Protocol):
    """Shows a run's metrics somewhere. An outage raises TrackerUnavailable: a warning now, sent later."""

    def last_step(self) -> int:
        """The last step its server has, -1 for none (step 0 is the validation before training); asked when it opens
        and after an outage, so resume and late sending need no state. Without a server it is what was written."""

    def log_generations(self, step: int, name: str, table: Table) -> None:
        """Send some responses of a step under a name (rl_core.tracking.generations); `log_step` of the same step comes
        after it. Sent again after an outage."""

    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send one step's metrics; when it returns, the step counts as shown."""

    def close(self) -> None:
        """Send what is buffered."""


class TrackerUnavailable(RuntimeError):
    """The tracker's server does not answer; training goes on and the missing steps are sent when it does."""

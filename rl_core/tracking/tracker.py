"""What a tracker must do (docs/architecture.md, "Trackers follow")."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rl_core.events import LogEvent

_logger = logging.getLogger(__name__)

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


@contextmanager
def tolerated_outage(what: str, log_event: LogEvent | None = None) -> Iterator[None]:
    """Swallow TrackerUnavailable from the block with a warning and the event `tracker-unavailable`.

    Args:
        what: What is not shown because of it ("the evaluation table"); the rest of the block is skipped.
        log_event: Takes the event.
    """
    try:
        yield
    except TrackerUnavailable as outage:
        report_outage(what, outage, log_event)


def report_outage(what: str, outage: TrackerUnavailable, log_event: LogEvent | None) -> None:
    """Warn that `what` is not shown now, and why."""
    _logger.warning("%s: not sent, the run goes on without it (%s)", what, outage)
    if log_event is not None:
        log_event("tracker-unavailable", what=what, reason=str(outage))

"""The interface of a tracker, and its outages (docs/architecture.md, "Trackers follow")."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rl_core.progress import LogEvent

_logger = logging.getLogger(__name__)

Table = Mapping[str, Sequence[Any]]
"""[column name] -> one JSON value for each row; all columns have the same length."""

STEP_KEY = "progress/step"
"""Metric whose value is the step itself. It is sent with the last part of a step, and so says which steps are
complete."""


class Tracker(Protocol):
    """Shows a run's metrics elsewhere. An outage raises TrackerUnavailable; the missing steps are then sent later."""

    def last_step(self) -> int:
        """The last step that the server has, or without a server that was written; -1 for none. Asked when the tracker
        opens and after an outage."""

    def log_generations(self, step: int, name: str, table: Table) -> None:
        """Send a table of some responses of a step: before `log_step`, and again after an outage."""

    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of a step; when this returns, the step counts as sent."""

    def close(self) -> None:
        """Send what is still buffered."""


class TrackerUnavailable(RuntimeError):
    """The tracker's server does not answer."""


class RefusedByTracker(TrackerUnavailable):
    """The tracker's server answers, and refuses what was sent."""


@contextmanager
def tolerated_outage(what: str, log_event: LogEvent | None = None) -> Iterator[None]:
    """Catch TrackerUnavailable in the block: a warning and an event say that `what` is not shown."""
    try:
        yield
    except TrackerUnavailable as outage:
        report_outage(what, outage, log_event)


def report_outage(what: str, outage: TrackerUnavailable, log_event: LogEvent | None) -> None:
    """Warn that `what` is not shown, with the reason."""
    _logger.warning("%s: not sent, the run goes on without it (%s)", what, outage)
    if log_event is not None:
        log_event("tracker-unavailable", what=what, reason=str(outage))

"""A tracker that does not answer is a warning, never a failure."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rl_core.events import LogEvent
from rl_core.tracking.protocol import TrackerUnavailable

_logger = logging.getLogger(__name__)


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

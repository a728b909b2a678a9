"""The interface for reporting an incident, independent of where it is written."""

from typing import Protocol


class LogEvent(Protocol):
    """Records an incident of the run."""

    def __call__(self, kind: str, **facts: object) -> None:
        """Record an incident of a kind ("checkpoint-damaged") with facts, which are JSON values."""

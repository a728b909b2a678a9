"""How any room reports an incident without knowing who writes it down."""

from typing import Protocol


class LogEvent(Protocol):
    """Writes an incident of the run down."""

    def __call__(self, kind: str, **facts: object) -> None:
        """`kind` names the incident ("checkpoint-damaged"); the facts are JSON values."""

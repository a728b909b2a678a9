"""What each worker has used in a step, from timings.jsonl, under the names that MLflow shows as system metrics."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rl_core.records.metrics_log import read_after

PREFIX: Final = "system/"
"""MLflow shows metrics with this prefix on a page of their own."""


class SystemMetrics:
    """Reads the system metrics of one step after another.

    MLflow's own monitor is not used: it samples by the clock and sees only the machine that it runs on, while these
    belong to the steps and come from every machine.
    """

    def __init__(self, timings: Path) -> None:
        """Read them from this file, a run's timings.jsonl."""
        self._path = timings
        self._lines: dict[int, dict[str, Any]] = {}

    def of_step(self, step: int) -> dict[str, float]:
        """[`system/worker_0/busy_share`, ...] -> value; empty for a step without timings, such as a validation before
        training."""
        if step not in self._lines:
            self._lines = {line["step"]: line for line in read_after(self._path, step - 1)}
        return system_metrics(self._lines.pop(step, {}))


def system_metrics(line: Mapping[str, Any]) -> dict[str, float]:
    """The system metrics in a line of timings.jsonl: seconds and peaks of memory of each worker, and its busy share, a
    share of 1."""
    columns = line.get("workers", {})
    found = {
        f"{PREFIX}worker_{worker}/{name}": float(value)
        for name, values in columns.items()
        for worker, value in enumerate(values)
        if isinstance(value, int | float)
    }
    shares = {
        f"{PREFIX}worker_{worker}/busy_share": 1.0 - idle / total
        for worker, (idle, total) in enumerate(zip(columns.get("idle_s", ()), columns.get("total_s", ()), strict=True))
    }
    return found | shares

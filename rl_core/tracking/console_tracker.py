"""The tracker that writes a run's steps to the log, which the command line shows."""

import logging
from collections.abc import Mapping
from itertools import groupby

from typing_extensions import override

from rl_core.tracking.generations import GENERATIONS, VAL_GENERATIONS
from rl_core.tracking.tracker import Table, Tracker

logger = logging.getLogger(__name__)

_ONE_OF = {GENERATIONS: "a response", VAL_GENERATIONS: "an answer to a held-out prompt"}


class ConsoleTracker(Tracker):
    """The log, one record for each step and each response, `after` the step that was shown last (-1: none)."""

    def __init__(self, *, after: int) -> None:
        self._last = after

    @override
    def last_step(self) -> int:
        return self._last

    @override
    def log_generations(self, step: int, name: str, table: Table) -> None:
        for row in zip(*table.values(), strict=True):
            lines = [f"  {column}: {value}" for column, value in zip(table, row, strict=True)]
            logger.info("step %d, %s\n%s", step, _ONE_OF[name], "\n".join(lines))

    @override
    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        logger.info("step %d\n%s", step, metrics_text(metrics))
        self._last = step

    @override
    def close(self) -> None:
        """Nothing is buffered."""


def metrics_text(metrics: Mapping[str, float]) -> str:
    """`  family  name 0.1, other 2`: one line for each family; families and names are in alphabetical order."""
    lines = []
    for family, names in groupby(sorted(metrics), key=lambda name: name.partition("/")[0] if "/" in name else ""):
        figures = ", ".join(f"{name.removeprefix(family + '/')} {metrics[name]:.4g}" for name in names)
        lines.append(f"  {family or 'step'}  {figures}")
    return "\n".join(lines)

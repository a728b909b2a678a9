"""Progress artifacts in Prefect: every progress bar, with the remaining time."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact

from rl_core.progress import Advance, Progress
from tasks.pages.artifacts import PAGES
from tasks.results.durations import duration

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_UPDATES = 5.0


class FlowProgress:
    """Shows every progress bar by another Progress, and every few seconds in Prefect."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown

    @contextmanager
    def bar(self, description: str, total: int | None) -> Iterator[Advance]:
        """Show a progress bar; yields the function that advances it."""
        with self._shown.bar(description, total) as show:
            page = _ProgressPage(description, total)

            def advance(count: int = 1, figures: str = "") -> None:
                show(count, figures)
                page.advance(count, figures)

            yield advance

    @contextmanager
    def wait(self, description: str) -> Iterator[None]:
        """Show that something is waited for, and log its start and its duration."""
        logger.info("%s ...", description)
        started = time.monotonic()
        with self._shown.wait(description):
            yield
        logger.info("%s: %s", description, duration(time.monotonic() - started))


class _ProgressPage:
    def __init__(self, description: str, total: int | None) -> None:
        self._description = description
        self._eta = Eta(total)
        self._artifact: UUID | None = None
        self._due = time.monotonic() + _SECONDS_BETWEEN_UPDATES

    def advance(self, count: int, figures: str) -> None:
        self._eta.advance(count, now=time.monotonic())
        finished = self._eta.is_finished and self._artifact is not None
        if time.monotonic() < self._due and not finished:
            return
        self._due = time.monotonic() + _SECONDS_BETWEEN_UPDATES
        percent, text = self._eta.percent, ", ".join(filter(None, (f"{self._description}: {self._eta}", figures)))
        if self._artifact is None:
            self._artifact = PAGES.write(lambda: create_progress_artifact(percent, description=text))
        else:
            artifact = self._artifact
            PAGES.write(lambda: update_progress_artifact(artifact, percent, description=text))


class Eta:
    """The share of work that is done, and the time that the rest takes at the mean speed; neither where the total is
    None. Work that was done before this process (in a continued epoch) does not count for the speed."""

    def __init__(self, total: int | None) -> None:
        self._total = None if total is None else max(total, 1)
        self._done = 0
        self._begun: tuple[float, int] | None = None
        self._left: float | None = None

    def advance(self, count: int, *, now: float) -> None:
        """`count` more units are done at `now`, seconds of a monotonic clock."""
        self._done += count
        if self._begun is None:
            self._begun = now, self._done
            return
        start, before = self._begun
        if self._done > before and self._total is not None:
            self._left = (now - start) / (self._done - before) * max(self._total - self._done, 0)

    @property
    def percent(self) -> float:
        """The share that is done, 0 to 100."""
        return 0.0 if self._total is None else min(100.0, 100.0 * self._done / self._total)

    @property
    def is_finished(self) -> bool:
        """Whether all is done."""
        return self._total is not None and self._done >= self._total

    def __str__(self) -> str:
        if self._total is None:
            return f"{self._done}"
        left = f", {duration(self._left)} left" if self._left and not self.is_finished else ""
        return f"{self._done} of {self._total}{left}"

"""Pages and progress bars of a run in Prefect (artifacts). What cannot be written is a warning, never a failure."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any
from uuid import UUID

import httpx
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.context import FlowRunContext
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging.handlers import APILogHandler

from rl_core.progress import Advance, Now, Progress, Reached
from rl_core.wording import duration

logger = logging.getLogger(__name__)

UNREACHABLE = (httpx.TransportError, PrefectHTTPStatusError)
"""What Prefect's client raises when its server cannot be reached or fails."""


class PrefectPages:
    """Writes artifacts until the server fails for the first time, since every further attempt would cost a timeout."""

    def __init__(self) -> None:
        self.reachable = True

    def write(self, action: Callable[[], Any]) -> Any:
        """Call the action in a flow. Returns its result; None outside of a flow, or when the server does not answer."""
        return self.send(action) if FlowRunContext.get() is not None else None

    def send(self, action: Callable[[], Any]) -> Any:
        """Call the action, which needs no flow. Returns its result; None when the server does not answer."""
        if not self.reachable:
            return None
        try:
            return action()
        except UNREACHABLE as error:
            self.reachable = False
            _stop_sending_logs()
            logger.warning("Prefect's server does not answer, the run goes on without its pages (%s)", error)
            return None


def _stop_sending_logs() -> None:
    """Remove Prefect's log handlers, which would report every record that they cannot send on the terminal."""
    for name in list(logging.root.manager.loggerDict):
        named = logging.getLogger(name)
        for handler in [handler for handler in named.handlers if isinstance(handler, APILogHandler)]:
            named.removeHandler(handler)


PAGES = PrefectPages()


def show_page(key: str, markdown: str, *, about: str) -> UUID | None:
    """Write a Markdown artifact of the flow run; Prefect's list shows the newest one of each key. Returns the id of the
    artifact; None when it could not be written."""
    return PAGES.write(lambda: create_markdown_artifact(key=key, markdown=markdown, description=about))


class LivePage:
    """A Markdown artifact that is updated with what `write` returns, at most every `seconds`."""

    def __init__(self, key: str, write: Callable[[], str], *, about: str, seconds: float) -> None:
        self._key = key
        self._write = write
        self._about = about
        self._seconds = seconds
        self._due = time.monotonic()
        self._artifact: UUID | None = None

    def refresh(self, *, now: bool = False) -> None:
        """Update the artifact when it is due, or `now`."""
        if not now and time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._seconds
        if self._artifact is None:
            self._artifact = show_page(self._key, self._write(), about=self._about)
            return
        artifact = self._artifact

        def update() -> None:
            with get_client(sync_client=True) as client:
                client.update_artifact(artifact, ArtifactUpdate(data=self._write()))

        PAGES.write(update)


_SECONDS_BETWEEN_UPDATES = 5.0


class FlowProgress:
    """Shows every progress bar by another Progress, and every few seconds in Prefect."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._open: list[Callable[[], str]] = []
        self._seconds: dict[str, float] = {}

    def doing(self) -> str:
        """What is being done, in words, with how long it took the last time; empty where nothing long is."""
        return self._open[-1]() if self._open else ""

    @contextmanager
    def bar(self, description: str, total: int | None) -> Iterator[Advance]:
        """Show a progress bar; yields the function that advances it."""
        page = _ProgressPage(description, total)
        with self._shown.bar(description, total) as show, self._opened(description, page.doing):

            def advance(count: int = 1, figures: str = "", now: Now | None = None) -> None:
                show(count, figures, now)
                page.advance(count, figures, now)

            yield advance

    @contextmanager
    def wait(self, description: str) -> Iterator[None]:
        """Show that something is waited for, and log its start, and its duration if that is a second or more."""
        logger.info("%s ...", description)
        started = time.monotonic()

        def doing() -> str:
            return f"{description}, {duration(time.monotonic() - started)} so far"

        with self._shown.wait(description), self._opened(description, doing):
            yield
        if (seconds := time.monotonic() - started) >= 1.0:
            logger.info("%s: %s", description, duration(seconds))

    @contextmanager
    def _opened(self, description: str, doing: Callable[[], str]) -> Iterator[None]:
        last = self._seconds.get(description)
        started = time.monotonic()

        def words() -> str:
            return doing() + ("" if last is None else f", last time {duration(last)}")

        self._open.append(words)
        try:
            yield
        finally:
            self._open.remove(words)
        self._seconds[description] = time.monotonic() - started


class _ProgressPage:
    """The artifact of a bar. One thread advances the bar while another one shows what is being done."""

    def __init__(self, description: str, total: int | None) -> None:
        self._description = description
        self._eta = Eta(total)
        self._reached = Reached()
        self._artifact: UUID | None = None
        self._due = time.monotonic() + _SECONDS_BETWEEN_UPDATES
        self._lock = Lock()

    def doing(self) -> str:
        """What the bar shows; where there is more in words than its units, without the time that all of them take."""
        words = self._reached.now.words
        return f"{self._description}: {f'{self._eta.place}, {words}' if words else self._eta}"

    def advance(self, count: int, figures: str, now: Now | None) -> None:
        """Count, and write the artifact when it is due."""
        with self._lock:
            self._reached.advance(count, figures, now)
            self._eta.reach(self._reached, at=time.monotonic())
            finished = self._eta.is_finished and self._artifact is not None
            if time.monotonic() < self._due and not finished:
                return
            self._due = time.monotonic() + _SECONDS_BETWEEN_UPDATES
            now_words = "" if finished else self._reached.now.words
            self._write(self._eta.percent, f"{self._description}: {self._eta}", self._reached.figures, now_words)

    def _write(self, percent: float, *words: str) -> None:
        text = ", ".join(filter(None, words))
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
        self._reached = Reached()
        self._begun: tuple[float, float] | None = None
        self._left: float | None = None

    def reach(self, reached: Reached, *, at: float) -> None:
        """So much is done `at` this time, in seconds of a monotonic clock."""
        self._reached = reached
        if self._begun is None:
            self._begun = at, reached.units
            return
        start, before = self._begun
        if reached.units > before and self._total is not None:
            self._left = (at - start) / (reached.units - before) * max(self._total - reached.units, 0)

    @property
    def percent(self) -> float:
        """The share that is done, 0 to 100."""
        return 0.0 if self._total is None else min(100.0, 100.0 * self._reached.units / self._total)

    @property
    def is_finished(self) -> bool:
        """Whether all is done."""
        return self._total is not None and self._reached.done >= self._total

    @property
    def place(self) -> str:
        """`3 of 40`."""
        return f"{self._reached.done}{'' if self._total is None else f' of {self._total}'}"

    def __str__(self) -> str:
        """`3 of 40, 55 min 12 s left`."""
        left = f", {duration(self._left)} left" if self._left and not self.is_finished else ""
        return f"{self.place}{left}"

"""What a person sees of a stage on Prefect's pages. A page that cannot be written is a warning, never a failure."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import httpx
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.context import FlowRunContext
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging.handlers import APILogHandler

from rl_core.progress import Advance, Progress
from tasks.manifests import StageManifest

logger = logging.getLogger(__name__)

UNREACHABLE = (httpx.TransportError, PrefectHTTPStatusError)
"""What Prefect's client raises when its server is gone or ill."""

_SECONDS_BETWEEN_UPDATES = 5.0


class PrefectPages:
    """Writes artifacts until the server fails once; asking a dead server again would cost its timeout every time."""

    def __init__(self) -> None:
        self.reachable = True

    def write(self, action: Callable[[], Any]) -> Any:
        """The action's result; None outside a flow, or when the server does not answer."""
        return self.send(action) if FlowRunContext.get() is not None else None

    def send(self, action: Callable[[], Any]) -> Any:
        """The same for an action that needs no flow around it."""
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
    """Prefect would complain on the terminal about every record that it cannot send."""
    for name in list(logging.root.manager.loggerDict):
        named = logging.getLogger(name)
        for handler in [handler for handler in named.handlers if isinstance(handler, APILogHandler)]:
            named.removeHandler(handler)


PAGES = PrefectPages()


def show_stage(manifest: StageManifest) -> None:
    """A Markdown page of a finished stage."""
    PAGES.write(
        lambda: create_markdown_artifact(
            key=manifest.stage, markdown=stage_page(manifest), description=f"What {manifest.stage} made"
        )
    )


def stage_page(manifest: StageManifest) -> str:
    """The stage's facts as Markdown tables."""
    origin = f"taken over from `{manifest.reused_from}`" if manifest.reused_from else "made by this run"
    size = sum(output.size for output in manifest.outputs.values())
    facts = {
        "wall time": f"{manifest.seconds:.1f} s",
        "origin": origin,
        "files": f"{len(manifest.outputs)} ({size / 1e6:.1f} MB)",
        "digest": f"`{manifest.digest}`",
    }
    facts |= {
        name: f"{value:.6g}" if isinstance(value, float) else f"{value}" for name, value in _flat(manifest.result)
    }
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    return f"# {manifest.stage}\n\n| | |\n|---|---|\n{rows}\n"


def _flat(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested mappings as dotted names; long texts are left to their files."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif not (isinstance(value, str) and "\n" in value):
            yield f"{prefix}{name}", value


class FlowProgress:
    """Shows every bar where another Progress shows it, and on the pages of the flow, every few seconds."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._listener: Callable[[], None] | None = None

    @contextmanager
    def calling(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` after each advance of a bar: a tracker follows the steps without a thread of its own."""
        self._listener = listener
        try:
            yield
        finally:
            self._listener = None

    @contextmanager
    def bar(self, description: str, total: int) -> Iterator[Advance]:
        """As Progress.bar."""
        with self._shown.bar(description, total) as show:
            page = _ProgressPage(description, total)

            def advance(count: int = 1, figures: str = "") -> None:
                show(count, figures)
                page.advance(count)
                if self._listener is not None:
                    self._listener()

            yield advance


class _ProgressPage:
    def __init__(self, description: str, total: int) -> None:
        self._description = description
        self._total = max(total, 1)
        self._done = 0
        self._artifact: UUID | None = None
        self._due = time.monotonic() + _SECONDS_BETWEEN_UPDATES

    def advance(self, count: int) -> None:
        self._done += count
        finished = self._done >= self._total and self._artifact is not None
        if time.monotonic() < self._due and not finished:
            return
        self._due = time.monotonic() + _SECONDS_BETWEEN_UPDATES
        percent = min(100.0, 100.0 * self._done / self._total)
        if self._artifact is None:
            self._artifact = PAGES.write(lambda: create_progress_artifact(percent, description=self._description))
        else:
            artifact = self._artifact
            PAGES.write(lambda: update_progress_artifact(artifact, percent))

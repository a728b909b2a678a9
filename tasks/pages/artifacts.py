"""Markdown pages of a run in Prefect (artifacts). A page that cannot be written is a warning, never a failure."""

import logging
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import httpx
from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.context import FlowRunContext
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging.handlers import APILogHandler

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


def show_page(experiment: str, name: str, markdown: str, *, about: str) -> UUID | None:
    """Write a Markdown artifact of the flow run. Its key begins with the experiment, since Prefect's list shows the
    newest artifact of each key. Returns the id of the artifact; None when it could not be written."""
    key = f"{experiment}-{name}"
    return PAGES.write(lambda: create_markdown_artifact(key=key, markdown=markdown, description=about))


class LivePage:
    """A Markdown artifact with the key `experiment-name` that is updated with what `write` returns, at most every
    `seconds`."""

    def __init__(self, experiment: str, name: str, write: Callable[[], str], *, about: str, seconds: float) -> None:
        self._experiment = experiment
        self._name = name
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
            self._artifact = show_page(self._experiment, self._name, self._write(), about=self._about)
        else:
            PAGES.write(lambda: self._update(self._artifact, self._write()))

    def _update(self, artifact: UUID | None, markdown: str) -> None:
        assert artifact is not None, "it was created"
        with get_client(sync_client=True) as client:
            client.update_artifact(artifact, ArtifactUpdate(data=markdown))

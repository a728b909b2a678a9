"""What a person sees of a run on Prefect's pages. A page that cannot be written is a warning, never a failure."""

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
"""What Prefect's client raises when its server is gone or ill."""


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


def show_page(experiment: str, name: str, markdown: str, *, about: str) -> UUID | None:
    """A Markdown artifact of the flow run. Keys begin with the experiment: Prefect's list shows the newest of each.

    Returns:
        Its id; None when it could not be written.
    """
    key = f"{experiment}-{name}"
    return PAGES.write(lambda: create_markdown_artifact(key=key, markdown=markdown, description=about))


class LivePage:
    """A Markdown artifact that is written anew while something goes on, at most every `seconds`.

    Args:
        experiment: Start of its key.
        name: Rest of its key.
        write: Makes the Markdown.
        about: Description.
        seconds: Time between two writings.
    """

    def __init__(self, experiment: str, name: str, write: Callable[[], str], *, about: str, seconds: float) -> None:
        self._experiment = experiment
        self._name = name
        self._write = write
        self._about = about
        self._seconds = seconds
        self._due = time.monotonic()
        self._artifact: UUID | None = None

    def refresh(self, *, now: bool = False) -> None:
        """Write it when it is due, or `now`."""
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

"""Prefect's server for a flow at a terminal: the configured one, or the embedded one, with their loose ends tied.

Prefect starts its embedded server as a child and ends it at the interpreter's exit. Two things are missing: Ctrl-C,
which a terminal sends to every process of a command, would end it before the flow could say how it ended; and a killed
parent would leave it running for ever. And a run whose server has gone would wait minutes at its end for each event.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect.client.orchestration import get_client
from prefect.events.clients import PrefectEventsClient
from prefect.events.worker import EventsWorker, emit_events_to_cloud
from prefect.settings import get_current_settings

from flows.children import ended_with_this_process


@contextmanager
def reached_prefect() -> Iterator[None]:
    """Reach Prefect's server, starting the embedded one where none is configured, for the length of the block.

    Raises:
        httpx.TransportError: the configured server does not answer.
        RuntimeError: the embedded server does not start.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a child inherits the mask
    try:
        with get_client(sync_client=True) as client:
            client.hello().raise_for_status()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    configured = get_current_settings().api.url
    if configured is not None:
        if not emit_events_to_cloud():
            _give_events_up_soon(configured)
        yield
        return
    embedded = _embedded()
    _give_events_up_soon(embedded.api_url)
    with ended_with_this_process(embedded.server_process.pid):
        yield


def prefect_address() -> str:
    """The API of the server that this process reached, for a child that is to use the same one."""
    return get_current_settings().api.url or _embedded().api_url


def _embedded() -> Any:
    """The embedded server, which get_client starts where no other one is configured."""
    # Imported here: it takes a second, and is loaded already where the embedded server was started.
    from prefect.server.api.server import SubprocessASGIServer

    return SubprocessASGIServer()


def _give_events_up_soon(api_url: str) -> None:
    """Two attempts an event; Prefect makes eleven, a second apart, before the process may end."""
    EventsWorker.set_client_override(PrefectEventsClient, api_url=api_url, reconnection_attempts=1)

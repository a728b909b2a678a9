"""Prefect's server for a flow at a terminal: the configured one, or the embedded one, with their loose ends tied.

Prefect starts its embedded server as a child and ends it at the interpreter's exit. Two things are missing: Ctrl-C,
which a terminal sends to every process of a command, would end it before the flow could say how it ended; and a killed
parent would leave it running for ever. And a run whose server has gone would wait minutes at its end for each event.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from prefect.client.orchestration import get_client
from prefect.events.clients import PrefectEventsClient
from prefect.events.worker import EventsWorker, emit_events_to_cloud
from prefect.settings import get_current_settings

from flows.process.children import ended_with_this_process
from rl_core.redaction import redact


class PrefectAway(OSError):
    """Prefect's server cannot be used; the message is a sentence with its address and what to do."""


@contextmanager
def named_when_away(address: str | None) -> Iterator[None]:
    """Raises PrefectAway where the block's calls to the server at this address fail; None is the embedded server."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        place = f"at {address}" if address else "of this command"
        advice = "start it, or correct PREFECT_API_URL; without that setting each command starts a server of its own"
        message = f"Prefect's server {place} does not answer ({_first_line(error)}): {advice}"
        raise PrefectAway(redact(message)) from error
    except RuntimeError as error:
        if address is not None:
            raise
        advice = "start one by `sightline server`, and set PREFECT_API_URL to it"
        raise PrefectAway(f"Prefect's embedded server does not start ({_first_line(error)}): {advice}") from error


def _first_line(error: Exception) -> str:
    """Prefect's messages go on with the whole answer; those of a timeout are empty."""
    return ": ".join([type(error).__name__, *f"{error}".splitlines()[:1]])


@contextmanager
def reached_prefect() -> Iterator[None]:
    """Reach Prefect's server, starting the embedded one where none is configured, for the length of the block.

    Raises:
        PrefectAway: the configured server does not answer, or the embedded one does not start.
    """
    configured = get_current_settings().api.url
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a child inherits the mask
    try:
        with named_when_away(configured), get_client(sync_client=True) as client:
            client.hello().raise_for_status()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
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

"""Prefect's server for a flow at a terminal: the configured server, or one that Prefect embeds in the command.

Prefect starts its embedded server as a child process and ends it when the interpreter exits. Four things are added
here. Servers that start at the same time wait for each other. Ctrl-C, which a terminal sends to every process of a
command, does not end the server before the flow has reported its end. The server does not stay behind when this process
is killed. And a run whose server is gone does not wait minutes for each event at its end.
"""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Final

import httpx
from filelock import FileLock, Timeout
from prefect.client.orchestration import get_client
from prefect.events.clients import PrefectEventsClient
from prefect.events.worker import EventsWorker, emit_events_to_cloud
from prefect.settings import get_current_settings

from rl_core.parent import ended_with_this_process
from rl_core.redaction import redact

_SECONDS_FOR_A_START: Final = 180.0


class PrefectAway(OSError):
    """Prefect's server cannot be used; the message names its address and says what to do."""


@contextmanager
def named_when_away(address: str | None) -> Iterator[None]:
    """Turns errors of the block's calls to the server at this address (None: the embedded one) into PrefectAway."""
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


@contextmanager
def starting_alone() -> Iterator[None]:
    """In the block a server of Prefect may start on the database of this machine, and no other one does: two that make
    the tables of a new database at the same time both fail. Raises PrefectAway where another start takes too long."""
    home = get_current_settings().home
    home.mkdir(parents=True, exist_ok=True)
    lock = FileLock(home / "server-start.lock")
    try:
        lock.acquire(timeout=_SECONDS_FOR_A_START)
    except Timeout:
        holds = f"another command has been starting Prefect's server for {_SECONDS_FOR_A_START:g} s"
        raise PrefectAway(f"{holds} (it holds {lock.lock_file}): end it, then start this one again") from None
    try:
        yield
    finally:
        lock.release()


def _first_line(error: Exception) -> str:
    """The type of an error and the first line of its message: after it, Prefect's messages quote whole responses. The
    message of a timeout is empty."""
    return ": ".join([type(error).__name__, *f"{error}".splitlines()[:1]])


@contextmanager
def reached_prefect() -> Iterator[None]:
    """Connect to Prefect's server for the length of the block; if none is configured, start the embedded one. Raises
    PrefectAway where the configured server does not answer, or the embedded one does not start."""
    configured = get_current_settings().api.url
    with _ended_when_killed(_embedded()) if configured is None else nullcontext():
        with starting_alone() if configured is None else nullcontext():
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a child inherits the mask
            try:
                with named_when_away(configured), get_client(sync_client=True) as client:
                    client.hello().raise_for_status()
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if configured is None or not emit_events_to_cloud():
            _give_events_up_soon(configured or _embedded().api_url)
        yield


@contextmanager
def _ended_when_killed(embedded: Any) -> Iterator[None]:
    """In the block the embedded server ends when this process is killed, from the moment on in which it is started:
    until it answers, many seconds may pass."""
    start = embedded._run_uvicorn_command
    with ExitStack() as stack:

        def started() -> Any:
            process = start()
            stack.enter_context(ended_with_this_process(process.pid))
            return process

        if embedded.running:
            stack.enter_context(ended_with_this_process(embedded.server_process.pid))
        embedded._run_uvicorn_command = started
        stack.callback(vars(embedded).pop, "_run_uvicorn_command")
        yield


def prefect_address() -> str:
    """The address of the API that this process uses, for a child process that is to use the same server."""
    return get_current_settings().api.url or _embedded().api_url


def _embedded() -> Any:
    """The embedded server, which get_client starts where no other one is configured."""
    # Imported here: it takes a second, and only a command without a configured server needs it.
    from prefect.server.api.server import SubprocessASGIServer

    return SubprocessASGIServer()


def _give_events_up_soon(api_url: str) -> None:
    """Make only two attempts to send an event; Prefect makes eleven, a second apart, before the process may end."""
    EventsWorker.set_client_override(PrefectEventsClient, api_url=api_url, reconnection_attempts=1)

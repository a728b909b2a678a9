"""The program of a ProcessWorker's process: `python -m rl_core.workers.serving CALLS SNAPSHOTS`, two descriptors."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext, suppress
from multiprocessing.connection import Connection
from typing import Any

from rl_core.redaction import redact_logs
from rl_core.workers.local_worker import LocalWorker
from rl_core.workers.messages import Call, Logged, Opening, Returned, StopYielding, Yielded
from rl_core.workers.sent_errors import raised

PARENT_POLL_SECONDS = 1.0


class RunHasGone(Exception):
    """The run has closed its end of the connection, so nobody waits for an answer."""


class Channel:
    """The connection to the run, shared by the threads of this process."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection
        self._sending = threading.RLock()

    def send(self, message: object) -> None:
        """Raises RunHasGone."""
        try:
            with self._sending:
                self._connection.send(message)
        except OSError as error:
            raise RunHasGone from error

    def receive(self) -> Any:
        """Raises RunHasGone."""
        try:
            return self._connection.recv()
        except (EOFError, OSError) as error:
            raise RunHasGone from error

    def has_message(self) -> bool:
        """Whether `receive` would return at once."""
        return self._connection.poll()


def serve(channel: Channel, snapshots: Channel) -> None:
    """Open the worker, then execute calls until the run closes the connection. On `snapshots`, calls are executed at
    the same time, in a thread."""
    opening: Opening = channel.receive()
    worker = LocalWorker(
        opening.config,
        opening.folders,
        total_optimizer_steps=opening.total_optimizer_steps,
        total_critic_steps=opening.total_critic_steps,
    )
    threading.Thread(target=_answer_all, args=(worker, snapshots), name="snapshots", daemon=True).start()
    channel.send(Returned(value=None, policy_version=worker.policy_version))
    _answer_all(worker, channel)
    worker.close()


def _answer_all(worker: LocalWorker, channel: Channel) -> None:
    """Execute calls, one after the other, until the run closes the connection."""
    with suppress(RunHasGone):
        while True:
            answer(worker, channel.receive(), channel)


def answer(worker: LocalWorker, call: Call | StopYielding, channel: Channel) -> None:
    """Execute one call, and send its result or its error."""
    if isinstance(call, StopYielding):
        return  # it was sent just before the generation ended by itself
    try:
        value = getattr(worker, call.method)(*call.arguments, **call.options)
        if isinstance(value, Iterator):
            send_each(value, channel)
            value = None
    except RunHasGone:
        raise
    except Exception as error:  # noqa: BLE001 - the run raises it, whatever it is
        channel.send(raised(error, policy_version=worker.policy_version))
        return
    channel.send(Returned(value=value, policy_version=worker.policy_version))


def send_each(values: Iterator[object], channel: Channel) -> None:
    """Send the values as they come, until they end or the run wants no more."""
    with closing(values) if isinstance(values, Generator) else nullcontext():
        for value in values:
            channel.send(Yielded(value=value))
            if channel.has_message():
                message = channel.receive()
                assert isinstance(message, StopYielding), f"{message} in the middle of a generation"
                return


class _SendingHandler(logging.Handler):
    """Sends the text of each log record to the run."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(RunHasGone):
            self._channel.send(Logged(name=record.name, level=record.levelno, text=self.format(record)))


def send_logs(channel: Channel) -> None:
    """Send log records to the run, without secrets: the records of this project, and warnings of other libraries."""
    redact_logs()
    logging.getLogger().addHandler(_SendingHandler(channel))
    logging.getLogger("rl_core").setLevel(logging.INFO)


def end_with_parent() -> None:
    """End this process when its parent has ended, even in the middle of a call."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def main() -> None:
    """Serve the two connections whose file descriptors are on the command line."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # The run decides when its worker stops. Not SIG_IGN, which child processes would inherit.
        signal.signal(number, lambda *_: None)
    end_with_parent()
    descriptors = [int(argument) for argument in sys.argv[1:]]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # a child that outlives this process must not keep the connection open
    channel, snapshots = (Channel(Connection(descriptor)) for descriptor in descriptors)
    send_logs(channel)
    try:
        serve(channel, snapshots)
    except RunHasGone:
        return
    except Exception as error:  # noqa: BLE001 - the worker could not be opened; the run raises the error
        channel.send(raised(error, policy_version=0))


if __name__ == "__main__":
    main()

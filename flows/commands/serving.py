"""Processes that serve for the length of a command. One that dies is named, with what killed it, and started again
after a pause; the others go on."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Final, Self

import httpx
from rich.console import Console

from flows.printing import last_lines, print_line
from flows.settings import set_flow_defaults
from rl_core.wording import exit_words

HOST: Final = "127.0.0.1"

PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds until a process that has died is started again: after the first death, the second in a row, and so on. After
one more it is given up."""

_AT_ONCE_SECONDS: Final = 60.0
"""A process that has lived longer did not die at once, and its death counts as the first in a row."""

_START_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.5
_SHOWN_LINES: Final = 15
_KILLED: Final = (-signal.SIGKILL, -signal.SIGTERM)
"""Exit statuses of a process that was ended from outside: what it has printed does not say why."""

_LINES_OF_A_DEATH: Final = 4
"""The error stands in the last ones; before it is a traceback through libraries."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PageServer:
    """A process that serves: command, environment, path of its health check, and how long it may take to stop.

    Attributes:
        is_whole: What it has started ends with it, since that would keep its port. The runs of a worker go on.
        when_up: Called after each start, when it answers.
    """

    name: str
    port: int
    command: Sequence[str]
    health: str
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_seconds: float = 10.0
    is_whole: bool = True
    when_up: Callable[[], None] = lambda: None

    @property
    def address(self) -> str:
        """The address for a browser."""
        return f"http://{HOST}:{self.port}"


class Serving:
    """Processes that run for the length of a `with` block; its end stops them, the last one first."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stack = ExitStack()
        # One client for all calls, because each reads the certificates of the system.
        self._client = self._stack.enter_context(httpx.Client(timeout=5.0))
        self._children: list[_Child] = []

    def __enter__(self) -> Self:
        set_flow_defaults()
        # A closed terminal and SIGTERM act like Ctrl-C, because the servers must not outlive this process. SIGINT is
        # set too: a script that starts this command in the background ignores it, and a worker would inherit that.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before = signal.signal(number, signal.default_int_handler)
            self._stack.callback(signal.signal, number, before)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def start(self, servers: Sequence[PageServer]) -> bool:
        """Start the servers in parallel, and print each address. Returns False where one does not start, and prints
        why."""
        begun = [self._begin(server) for server in servers]
        for child in begun:
            server = child.server
            if not child.comes_up():
                why = f"{server.name} did not start on port {server.port}:"
                print_line(self._console, why, label="[bold red]failed[/bold red]")
                child.print_last_lines()
                return False
            self._console.print(f"{server.name:8} {server.address}", highlight=False)
        return True

    def wait(self, also: Callable[[], None] = lambda: None) -> int:
        """Keep the processes running until Ctrl-C (returns 0), or until each of them has been given up (returns 1);
        `also` is called now and then."""
        self._console.print("[dim]Ctrl-C stops them[/dim]")
        try:
            while not all(child.is_given_up for child in self._children):
                time.sleep(_LOOK_SECONDS)
                for child in self._children:
                    child.look()
                also()
        except KeyboardInterrupt:
            return 0
        return 1

    def _begin(self, server: PageServer) -> "_Child":
        child = _Child(server, self._console, self._client)
        self._stack.callback(child.stop)
        self._children.append(child)
        return child


class _Child:
    """A process that is started again after its death."""

    def __init__(self, server: PageServer, console: Console, client: httpx.Client) -> None:
        self.server = server
        self.is_given_up = False
        self._console = console
        self._client = client
        self._deaths = 0
        self._start()

    def comes_up(self) -> bool:
        """Wait until the process answers. False if it ends before, or takes too long."""
        while time.monotonic() < self._begun + _START_SECONDS and self._process.poll() is None:
            if self._answers():
                return True
            time.sleep(0.2)
        return False

    def look(self) -> None:
        """Name the process if it has died, and start it again when that is due."""
        if self.is_given_up:
            return
        if self._due is not None:
            if time.monotonic() >= self._due:
                self._start()
        elif self._process.poll() is not None:
            self._name_death()
        elif not self._is_up and self._answers():
            print_line(self._console, f"{self.server.name} is there again: {self.server.address}")

    def stop(self) -> None:
        """End the process."""
        if self._due is not None or self.is_given_up:
            return
        self._process.terminate()
        try:
            self._process.wait(self.server.stop_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._end_rest()
        self._output.close()

    def print_last_lines(self, count: int = _SHOWN_LINES) -> None:
        """Print what the process has printed last."""
        for line in last_lines(self._output, count):
            print_line(self._console, f"  {line}", style="dim")

    def _start(self) -> None:
        self._due: float | None = None
        self._is_up = False
        self._begun = time.monotonic()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed after the process has ended
        # In a process group of its own, so that Ctrl-C reaches only this process, which then stops the servers.
        self._process = subprocess.Popen(
            self.server.command,
            env={**os.environ, **self.server.environment},
            stdout=self._output,
            stderr=self._output,
            process_group=0,
        )

    def _answers(self) -> bool:
        with suppress(httpx.TransportError):
            self._is_up = self._client.get(self.server.address + self.server.health).is_success
        if self._is_up:
            self.server.when_up()
        return self._is_up

    def _name_death(self) -> None:
        """Say what has killed the process, and what comes now."""
        self._end_rest()
        lived = time.monotonic() - self._begun
        self._deaths = 1 if lived > _AT_ONCE_SECONDS else self._deaths + 1
        status = self._process.returncode
        name, how = self.server.name, _how_it_died(status)
        if self._deaths > len(PAUSES):
            self.is_given_up, label = True, "[bold red]failed[/bold red]"
            what_now = (
                f"it has died {self._deaths} times in a row, each time at once, and is not started again. Correct what "
                f"its last lines say (if another process has port {self.server.port}, end that one), then stop this "
                "command and start it again. The others go on"
            )
        else:
            pause, label = PAUSES[self._deaths - 1], "[yellow]warning[/yellow]"
            self._due = time.monotonic() + pause
            what_now = f"it is started again in {pause:g} s, and the others go on"
        if status in _KILLED and not self.is_given_up:
            print_line(self._console, f"{name} {how}: {what_now}", label=label)
        else:
            print_line(self._console, f"{name} {how}: {what_now}. Its last lines:", label=label)
            self.print_last_lines(_SHOWN_LINES if self.is_given_up else _LINES_OF_A_DEATH)
        self._output.close()

    def _end_rest(self) -> None:
        """End what the process has left behind."""
        if self.server.is_whole:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _how_it_died(status: int) -> str:
    if status >= 0:
        return f"ended by itself, with {exit_words(status)}"
    memory = ", as when a machine or a container runs out of memory (`dmesg` names the process then)"
    return f"was killed by {exit_words(status)}{memory if -status == signal.SIGKILL else ''}"

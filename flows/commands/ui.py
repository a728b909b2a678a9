"""`sightline ui`: the pages of MLflow and Prefect, reachable from this machine only."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

import httpx
from rich.console import Console

from flows.printing import last_lines
from flows.settings import set_flow_defaults

_HOST = "127.0.0.1"
POOL = "local"
"""Name of the work pool in prefect.yaml."""

_START_SECONDS = 120.0
_SHOWN_LINES = 15


@dataclass(frozen=True, kw_only=True, slots=True)
class PageServer:
    """A server of pages: command, environment, address of its health check, and how long it may take to stop."""

    name: str
    port: int
    command: Sequence[str]
    health: str
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_seconds: float = 10.0

    @property
    def address(self) -> str:
        """The address for a browser."""
        return f"http://{_HOST}:{self.port}"


def page_servers(*, mlflow_uri: str, mlflow_port: int, prefect_port: int) -> list[PageServer]:
    """The servers of MLflow and Prefect. By default MLflow starts four workers and a job runner (15 processes, 2 GB);
    here it is one worker, which is enough for one person."""
    from rl_core.tracking.mlflow_access import absolute_uri

    python = [sys.executable, "-m"]
    mlflow = ["mlflow", "server", "--workers", "1"]
    prefect = ["prefect", "server", "start", "--host", _HOST, "--port", f"{prefect_port}"]
    return [
        PageServer(
            name="MLflow",
            port=mlflow_port,
            command=[*python, *mlflow, "--host", _HOST, "--port", f"{mlflow_port}"],
            health="/health",
            # The address may contain a password, and every user of the machine can read a process's arguments.
            environment={
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                "MLFLOW_BACKEND_STORE_URI": absolute_uri(mlflow_uri),
            },
        ),
        PageServer(
            name="Prefect",
            port=prefect_port,
            command=[*python, *prefect],
            health="/api/health",
            # Pages on another port than the default one must be told where the API is.
            environment={"PREFECT_UI_API_URL": f"http://{_HOST}:{prefect_port}/api"},
        ),
    ]


def worker_server(
    *,
    port: int,
    prefect_port: int,
    name: str = "worker",
    options: Sequence[str] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> PageServer:
    """A worker that runs the deployments of the pool, which it makes if it is not there; its address is its health
    check. The runs that it carries out have the variables of `environment` too."""
    start = ["prefect", "worker", "start", "--pool", POOL, "--type", "process", "--with-healthcheck"]
    return PageServer(
        name=name,
        port=port,
        command=[sys.executable, "-m", *start, "--name", name, *options],
        health="/health",
        environment={
            **environment,
            "PREFECT_API_URL": f"http://{_HOST}:{prefect_port}/api",
            "PREFECT_WORKER_WEBSERVER_HOST": _HOST,
            "PREFECT_WORKER_WEBSERVER_PORT": f"{port}",
        },
        stop_seconds=60.0,
    )


def serve_pages(servers: Sequence[PageServer], console: Console) -> int:
    """Start the servers, print their addresses, wait for Ctrl-C. Returns 1 if a server ended by itself, else 0."""
    with Serving(console) as serving:
        return serving.wait() if serving.start(servers) else 1


class Serving:
    """Processes that run for the length of a `with` block; its end stops them, the last one first."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the stack
        self._stack = ExitStack()
        self._stack.enter_context(self._output)
        self._processes: list[subprocess.Popen[bytes]] = []

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
        running = [(server, self._start(server)) for server in servers]
        for server, process in running:
            if not _is_up(server, process):
                why = f"{server.name} did not start on port {server.port}:"
                self._console.print(f"[bold red]failed[/bold red] {why}", highlight=False)
                lines = last_lines(self._output, _SHOWN_LINES)
                self._console.print("\n".join(lines), markup=False, highlight=False)
                return False
            self._console.print(f"{server.name:8} {server.address}", highlight=False)
        return True

    def wait(self) -> int:
        """Wait until Ctrl-C (returns 0), or until a server ends by itself (returns 1)."""
        self._console.print("[dim]Ctrl-C stops them[/dim]")
        try:
            while all(process.poll() is None for process in self._processes):
                time.sleep(0.5)
        except KeyboardInterrupt:
            return 0
        return 1

    def _start(self, server: PageServer) -> "subprocess.Popen[bytes]":
        # In a process group of its own, so that Ctrl-C reaches only this process, which then stops the servers.
        process = subprocess.Popen(
            server.command,
            env={**os.environ, **server.environment},
            stdout=self._output,
            stderr=self._output,
            process_group=0,
        )
        self._stack.callback(_stop, process, server.stop_seconds)
        self._processes.append(process)
        return process


def _is_up(server: PageServer, process: "subprocess.Popen[bytes]") -> bool:
    until = time.monotonic() + _START_SECONDS
    with httpx.Client(timeout=5.0) as client:  # one for all calls, because each reads the certificates of the system
        while time.monotonic() < until and process.poll() is None:
            with suppress(httpx.TransportError):
                if client.get(server.address + server.health).is_success:
                    return True
            time.sleep(0.2)
    return False


def _stop(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

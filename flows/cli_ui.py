"""`sightline ui`: the pages of MLflow and Prefect, reachable from this machine only."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO

import httpx
from rich.console import Console

from flows.settings import set_flow_defaults

_HOST = "127.0.0.1"
_START_SECONDS = 120.0
_STOP_SECONDS = 10.0
_SHOWN_LINES = 15


@dataclass(frozen=True, kw_only=True, slots=True)
class PageServer:
    """A server of pages: how it is started, and what answers when it is up."""

    name: str
    port: int
    command: Sequence[str]
    health: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        return f"http://{_HOST}:{self.port}"


def page_servers(*, mlflow_uri: str, mlflow_port: int, prefect_port: int) -> list[PageServer]:
    """MLflow's and Prefect's. MLflow's default is four workers and a job runner (15 processes, 2 GB): one worker is
    plenty for one person."""
    from rl_core.tracking.mlflow_access import absolute_uri

    python = [sys.executable, "-m"]
    mlflow = ["mlflow", "server", "--backend-store-uri", absolute_uri(mlflow_uri), "--workers", "1"]
    prefect = ["prefect", "server", "start", "--host", _HOST, "--port", f"{prefect_port}"]
    return [
        PageServer(
            name="MLflow",
            port=mlflow_port,
            command=[*python, *mlflow, "--host", _HOST, "--port", f"{mlflow_port}"],
            health="/health",
            environment={"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        ),
        PageServer(
            name="Prefect",
            port=prefect_port,
            command=[*python, *prefect],
            health="/api/health",
            # Pages that are served elsewhere than on the default port must ask that port.
            environment={"PREFECT_UI_API_URL": f"http://{_HOST}:{prefect_port}/api"},
        ),
    ]


def serve_pages(servers: Sequence[PageServer], console: Console) -> int:
    """Start the servers, say where they are, and wait for Ctrl-C. Returns the exit code: 1 when one ended by itself."""
    set_flow_defaults()
    with ExitStack() as stack:
        # A closed terminal and SIGTERM act as Ctrl-C does: the servers must not outlive this process.
        for number in (signal.SIGTERM, signal.SIGHUP):
            before = signal.signal(number, signal.default_int_handler)
            stack.callback(signal.signal, number, before)
        said = stack.enter_context(tempfile.TemporaryFile())
        running = []
        for server in servers:
            # In a group of its own: Ctrl-C reaches this process alone, which then stops the servers.
            process = subprocess.Popen(
                server.command,
                env={**os.environ, **server.environment},
                stdout=said,
                stderr=said,
                process_group=0,
            )
            stack.callback(_stop, process)
            running.append((server, process))
        for server, process in running:
            if not _is_up(server, process):
                _say_why(server, said, console)
                return 1
            console.print(f"{server.name:8} {server.address}", highlight=False)
        console.print("[dim]Ctrl-C stops both[/dim]")
        return _wait([process for _, process in running])


def _say_why(server: PageServer, said: IO[bytes], console: Console) -> None:
    said.seek(0)
    last_lines = said.read().decode(errors="replace").splitlines()[-_SHOWN_LINES:]
    console.print(f"[bold red]failed[/bold red] {server.name} did not start on port {server.port}:", highlight=False)
    console.print("\n".join(last_lines), markup=False, highlight=False)


def _is_up(server: PageServer, process: "subprocess.Popen[bytes]") -> bool:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(server.address + server.health, timeout=5.0).is_success:
                return True
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    return False


def _wait(processes: Sequence["subprocess.Popen[bytes]"]) -> int:
    try:
        while all(process.poll() is None for process in processes):
            time.sleep(0.5)
    except KeyboardInterrupt:
        return 0
    return 1


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

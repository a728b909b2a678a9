"""Processes of a test: started, waited for, reached, and gone at its end."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import psutil

from rl_core.config.loading import load_config
from rl_core.run_directory import RunDirectory
from tasks.stages import run_name
from tests.e2e.runs import REPOSITORY, SMALL, command, environment, run_arguments

PREFECT = [sys.executable, "-m", "prefect"]


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 240.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, f"waited {seconds} s until {what}"
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def started(arguments: list[str], variables: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, like a command in its own terminal; gone at the end of the block."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            arguments, env=variables, cwd=REPOSITORY, stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def prefect_server(home: Path, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """A server of its own on a free port, and the environment that reaches it."""
    port = free_port()
    variables = environment(home) | {
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
    }
    arguments = [*PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with started(arguments, variables, log) as process:
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/api/health"), "Prefect's server is up")
        yield process, variables


def answers(address: str) -> bool:
    try:
        return httpx.get(address, timeout=5.0).is_success
    except httpx.TransportError:
        return False


def listening(process: psutil.Process) -> Iterator[str]:
    """Addresses at which a process or its children wait for strangers."""
    for one in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            connections = one.net_connections(kind="inet")
            yield from (found.laddr.ip for found in connections if found.status == psutil.CONN_LISTEN)


def run_of(home: Path, *overrides: str) -> tuple[list[str], RunDirectory]:
    """The command line of a run of the small config with these overrides, and the folder that it writes."""
    config = load_config(SMALL, overrides)
    return command(*run_arguments(home, SMALL, *overrides)), RunDirectory(home / "runs" / run_name(config))


def flow_run_states(home: Path, run: RunDirectory) -> list[str]:
    """Final states of a run's flow runs, the oldest first, from Prefect's database."""
    with closing(sqlite3.connect(home / "prefect" / "prefect.db")) as database:
        rows = database.execute("select state_name from flow_run where name = ? order by created", (run.name,))
        return [name for (name,) in rows]


def has_recorded(run: RunDirectory, step: int) -> bool:
    return run.metrics.is_file() and f'"step":{step}' in run.metrics.read_text()

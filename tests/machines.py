"""Several machines of a Ray cluster, each a raylet of this one, as `ray start` starts them."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil
import ray
from ray._private import ray_constants

from rl_core.environment import with_these_sources
from rl_core.workers.local_ray import require_token
from tests.servers import free_port, wait_until

_ONLY_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's variable by which the local clusters of a run refuse other machines (rl_core.workers.ray_head)."""

SOON: Final = 60.0
"""Seconds within which a lost worker is noticed on a machine that is busy with other tests, long before the limit on
hangs. How soon it is on an idle one is in benchmarks/results/cluster_chaos.json."""

_LAST_WORKER_PORT = 19_999
"""Of the ports that Ray gives to workers, none of which may be the head's."""

_WORKER = "ray::RankActor"

_START = [sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
_HERE = ["--node-ip-address=127.0.0.1", "--num-gpus=0", f"--object-store-memory={128 << 20}"]


def call_of(process: psutil.Process) -> str | None:
    """What the worker in a process is doing, as Ray writes it into the process's title: `generate`, `call` for other
    methods, "" for nothing; None if it is no worker or has ended."""
    with suppress(psutil.NoSuchProcess):
        title = next(iter(process.cmdline()), "")
        if title.startswith(_WORKER):
            return title.removeprefix(_WORKER).removeprefix(".")
    return None


def workers_below(process: psutil.Process) -> list[psutil.Process]:
    """The workers of runs among a process's children and theirs."""
    with suppress(psutil.NoSuchProcess):  # it has ended
        return [child for child in process.children(recursive=True) if call_of(child) is not None]
    return []


class Machine:
    """One `ray start`, with all that it starts.

    Attributes:
        process: The command.
    """

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], output: Path) -> None:
        self._output = output
        with output.open("wb") as stream:
            self.process = subprocess.Popen(
                command,
                env={**environment, "PYTHONPATH": with_these_sources()},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._command = psutil.Process(self.process.pid)
        wait_until(self._runs, "a machine runs Ray")

    @property
    def raylet(self) -> psutil.Process:
        """The process without which a machine is lost."""
        return next(child for child in self._command.children() if child.name() == "raylet")

    @property
    def workers(self) -> list[psutil.Process]:
        """The workers of runs on this machine."""
        return workers_below(self._command)

    def kill(self) -> None:
        """The machine is gone: its raylet gets SIGKILL, and the workers end with it."""
        self.raylet.kill()

    def end(self) -> None:
        """End whatever still runs."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _runs(self) -> bool:
        output = self._output.read_text(errors="replace")
        assert self.process.poll() is None, output
        return "This command will now block" in output


class Machines:
    """A head machine, on which the run itself runs, and others that join it.

    Attributes:
        address: The address of the cluster.
        environment: The environment of a run that joins it, in which is its token.
    """

    def __init__(self, *, cpus: int = 1, **environment: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # the paths of sockets must be short
        require_token()
        self.environment = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0", **os.environ}
        self.environment.pop(_ONLY_LOOPBACK, None)
        self._of_machines = {**self.environment, **environment}
        self._cpus = cpus
        self._started: list[Machine] = []
        port = next(port for port in iter(free_port, None) if port > _LAST_WORKER_PORT)
        self.address = f"127.0.0.1:{port}"
        head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={self._folder}/ray"]
        self.head = self._start(head)

    def add(self) -> Machine:
        """Another machine that joins."""
        return self._start([f"--address={self.address}"])

    def _start(self, arguments: Sequence[str]) -> Machine:
        output = self._folder / f"{len(self._started)}.txt"
        command = [*_START, *_HERE, f"--num-cpus={self._cpus}", *arguments]
        machine = Machine(command, environment=self._of_machines, output=output)
        self._started.append(machine)
        return machine

    @property
    def all(self) -> list[Machine]:
        """Every machine that was started, dead ones included."""
        return [*self._started]

    @property
    def is_there(self) -> bool:
        """Whether the cluster still answers."""
        host, _, port = self.address.partition(":")
        try:
            socket.create_connection((host, int(port)), timeout=1.0).close()
        except OSError:
            return False
        return self.head.process.poll() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for machine in reversed(self._started):
            machine.end()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def joined_from_here(**environment: str) -> Iterator[Machines]:
    """A cluster that this process can join, even after a test for which it had kept to its loopback. If a test has left
    this process in it, it leaves now: Ray ends a process whose machine goes."""
    was_allowed, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, True
    try:
        with Machines(**environment) as machines:
            try:
                yield machines
            finally:
                ray.shutdown()
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = was_allowed

"""What the processes of a machine answer, some of which end while they are asked."""

import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import psutil

if TYPE_CHECKING:
    from rl_core.workers.ray_group import RayWorkerGroup

Answer = TypeVar("Answer")


def printed_by(code: str, *arguments: object, variables: Mapping[str, str] | None = None) -> str:
    """What a Python process of its own prints that runs this code without an error."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def gone(pids: Collection[int]) -> bool:
    """Whether none is left, not even one that has ended and waits for its parent to ask (a zombie)."""
    return not any(map(psutil.pid_exists, pids))


def living(pids: Collection[int]) -> list[int]:
    """Those that run: neither gone nor a zombie.

    A process that ends between being listed and being looked at is gone; ``psutil.Process(pid)`` after
    ``psutil.pid_exists(pid)`` raises then.
    """
    found = {process.pid: process.info["status"] for process in psutil.process_iter(["status"])}
    return [pid for pid in pids if found.get(pid, psutil.STATUS_ZOMBIE) != psutil.STATUS_ZOMBIE]


def answers(process: psutil.Process, question: Callable[[psutil.Process], Answer]) -> list[Answer]:
    """What a process and all processes below it answer, without those that have ended."""
    found: list[Answer] = []
    for one in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            found.append(question(one))
    return found


def listening(process: psutil.Process) -> set[str]:
    """Addresses at which a process or one below it waits for strangers."""
    connections = answers(process, lambda one: one.net_connections(kind="inet"))
    return {found.laddr.ip for each in connections for found in each if found.status == psutil.CONN_LISTEN}


def pids_of(workers: "RayWorkerGroup") -> list[int]:
    """The processes of the workers, those that train first."""
    groups = {id(group): group for group in (workers._workers, workers._generators)}
    return [process.pid for group in groups.values() for process in group.processes]

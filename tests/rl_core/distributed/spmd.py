"""Runs a function on several ranks, each a process of its own, and brings back what they return."""

import pickle
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_core.distributed.place import RankPlace

ROOT = Path(__file__).parents[3]

PROGRAM = """
import pickle, sys
from pathlib import Path
from rl_core.environment import share_cores
share_cores()
import torch
torch.set_num_threads(1)
function, place, arguments, out = pickle.loads(sys.stdin.buffer.read())
Path(out).write_bytes(pickle.dumps(function(place, *arguments)))
"""


def run_ranks(
    function: Any, folder: Path, *arguments: object, size: int, ranks_a_node: int | None = None, timeout: float = 1200
) -> list[Any]:
    """What `function(place, *arguments)` returns on each rank. Raises AssertionError with the errors of all ranks."""
    started = begin_ranks(function, folder, *arguments, size=size, ranks_a_node=ranks_a_node)
    return finish_ranks(started, folder, timeout=timeout)


def begin_ranks(
    function: Any, folder: Path, *arguments: object, size: int, ranks_a_node: int | None = None
) -> list["subprocess.Popen[bytes]"]:
    """The processes of the ranks."""
    meeting = f"tcp://127.0.0.1:{free_port()}"
    started = []
    for rank in range(size):
        place = RankPlace(rank=rank, size=size, ranks_a_node=ranks_a_node or size, meeting=meeting)
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stderr=(folder / f"errors-{rank}").open("wb"),
        )
        assert process.stdin is not None
        process.stdin.write(pickle.dumps((function, place, arguments, str(folder / f"found-{rank}"))))
        process.stdin.close()
        started.append(process)
    return started


def finish_ranks(started: Sequence["subprocess.Popen[bytes]"], folder: Path, *, timeout: float = 1200) -> list[Any]:
    """What the ranks returned."""
    try:
        codes = [process.wait(timeout) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    errors = [(folder / f"errors-{rank}").read_text(errors="replace") for rank in range(len(started))]
    assert codes == [0] * len(started), "\n".join(f"rank {rank}:\n{text}" for rank, text in enumerate(errors))
    return [pickle.loads((folder / f"found-{rank}").read_bytes()) for rank in range(len(started))]


def free_port() -> int:
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return int(any_socket.getsockname()[1])

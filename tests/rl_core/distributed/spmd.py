"""Runs a function on several ranks, each a process of its own, and brings back what they return."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from rl_core.distributed.place import RankPlace

ROOT = Path(__file__).parents[3]

PROGRAM = """
import gc, json, os, pickle, sys
from pathlib import Path
from rl_core.environment import share_cores
share_cores()
import torch
torch.set_num_threads(1)
function, places, arguments, folder = pickle.loads(sys.stdin.buffer.read())  # imports what the ranks need, once
gc.freeze()
ranks = []
for place in places:
    rank = os.fork()
    if rank == 0:
        break
    ranks.append(rank)
else:
    codes = [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]
    Path(folder, "codes").write_text(json.dumps(codes))
    sys.exit()
os.dup2(os.open(Path(folder, f"errors-{place.rank}"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
Path(folder, f"found-{place.rank}").write_bytes(pickle.dumps(function(place, *arguments)))
"""


def run_ranks(
    function: Any, folder: Path, *arguments: object, size: int, ranks_a_node: int | None = None, timeout: float = 1200
) -> list[Any]:
    """What `function(place, *arguments)` returns on each rank. Raises AssertionError with the errors of all ranks.

    A process that has imported what they need forks them, because imports take most of the time of a small test.
    """
    meeting = f"tcp://127.0.0.1:{free_port()}"
    places = [
        RankPlace(rank=rank, size=size, ranks_a_node=ranks_a_node or size, meeting=meeting) for rank in range(size)
    ]
    codes = folder / "codes"
    codes.unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stderr=(folder / "errors").open("wb"),
        start_new_session=True,
    )
    try:
        process.communicate(pickle.dumps((function, places, arguments, str(folder))), timeout=timeout)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    assert codes.is_file(), (folder / "errors").read_text(errors="replace")
    errors = [(folder / f"errors-{rank}").read_text(errors="replace") for rank in range(size)]
    assert json.loads(codes.read_text()) == [0] * size, "\n".join(
        f"rank {rank}:\n{text}" for rank, text in enumerate(errors)
    )
    return [pickle.loads((folder / f"found-{rank}").read_bytes()) for rank in range(size)]


def free_port() -> int:
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return int(any_socket.getsockname()[1])

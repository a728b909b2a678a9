"""Runs a function on several ranks, each a process of its own, and brings back what they return."""

import json
import os
import pickle
import select
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from rl_core.distributed.place import RankPlace
from tests.servers import free_port

ROOT = Path(__file__).parents[3]

PROGRAM = """
import gc, json, os, pickle, sys
from pathlib import Path
from rl_core.environment import share_cores
share_cores()
import torch
torch.set_num_threads(1)

def print_into(path):
    with path.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)

def launch(folder):
    print_into(folder / "errors")
    function, places, arguments = pickle.loads((folder / "request").read_bytes())  # imports what the ranks need
    gc.freeze()
    ranks = []
    for place in places:
        rank = os.fork()
        if rank == 0:
            print_into(folder / f"errors-{place.rank}")
            (folder / f"found-{place.rank}").write_bytes(pickle.dumps(function(place, *arguments)))
            sys.exit()
        ranks.append(rank)
    codes = [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]
    (folder / "codes").write_text(json.dumps(codes))

with os.fdopen(os.dup(1), "w") as answers:
    for line in sys.stdin:
        launch(Path(line[:-1]))
        print(file=answers, flush=True)
"""
"""Launches ranks for each folder that it reads, and answers with a line when they have ended."""


@cache
def _launcher() -> subprocess.Popen[str]:
    """A process that forks ranks and ends with this one. It imports what ranks need once for all tests, because imports
    take most of the time of a small one."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )


def run_ranks(
    function: Any, folder: Path, *arguments: object, size: int, ranks_per_node: int | None = None, timeout: float = 1200
) -> list[Any]:
    """What `function(place, *arguments)` returns on each rank. Raises AssertionError with the errors of all ranks."""
    meeting = f"tcp://127.0.0.1:{free_port()}"
    places = [
        RankPlace(rank=rank, size=size, ranks_per_node=ranks_per_node or size, meeting=meeting) for rank in range(size)
    ]
    codes = folder / "codes"
    codes.unlink(missing_ok=True)
    (folder / "request").write_bytes(pickle.dumps((function, places, arguments)))
    _launch(folder, timeout)
    assert codes.is_file(), (folder / "errors").read_text(errors="replace")
    errors = [(folder / f"errors-{rank}").read_text(errors="replace") for rank in range(size)]
    assert json.loads(codes.read_text()) == [0] * size, "\n".join(
        f"rank {rank}:\n{text}" for rank, text in enumerate(errors)
    )
    return [pickle.loads((folder / f"found-{rank}").read_bytes()) for rank in range(size)]


def _launch(folder: Path, timeout: float) -> None:
    """Wait until the ranks of a request have ended, or the launcher has."""
    launcher = _launcher()
    assert launcher.stdin is not None and launcher.stdout is not None
    has_answered = False
    try:
        print(folder, file=launcher.stdin, flush=True)
        answered, _, _ = select.select([launcher.stdout], [], [], timeout)
        assert answered, f"the ranks have not ended within {timeout} s"
        has_answered = launcher.stdout.readline() != ""
    finally:
        if not has_answered:
            os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait()
            _launcher.cache_clear()

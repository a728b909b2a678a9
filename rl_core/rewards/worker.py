"""What runs in a scoring process: the only place where a reward function is called."""

import asyncio
import ctypes
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import time

from rl_core.rewards.judging import Judge, error_text
from rl_core.rewards.loading import load_scorer
from rl_core.rewards.messages import Outcome, PoolOrder
from rl_core.rewards.spec import RewardSpec

LOAD_SECONDS = 120
"""Reward files whose import takes longer kill their process."""

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>

_process: "_Process"


class _Process:
    """What this process loaded: for each function a judge, or the reason why there is none."""

    def __init__(self, order: PoolOrder) -> None:
        self._order = order
        self._runner = asyncio.Runner()
        self.lanes = [self._load(spec) for spec in order.specs]

    def _load(self, spec: RewardSpec) -> Judge | str:
        try:
            scorer = load_scorer(spec)
        except Exception as error:  # noqa: BLE001 - a stranger's file may raise anything; each sample tells
            return f"could not load {spec.name}: {error_text(error)}"
        return Judge(
            scorer=scorer,
            timeout_seconds=self._order.timeout_seconds,
            memory_limit_bytes=self._order.memory_limit_bytes,
            runner=self._runner,
        )


def start_process(order: PoolOrder) -> None:
    """Set the limits of this process and load the functions; runs once, when the process starts."""
    global _process
    _die_with_the_server()
    # pebble asks with SIGTERM before it kills. Python would answer between two bytecodes, which a regular expression
    # that runs away never reaches; the kernel answers at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (order.memory_limit_bytes, order.memory_limit_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(LOAD_SECONDS)
    _process = _Process(order)
    signal.alarm(0)


def _die_with_the_server() -> None:
    """A process that waits for a chunk sees the server's end by itself; one that hangs in a call does not."""
    if sys.platform != "linux":
        return
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    server = multiprocessing.parent_process()
    if server is None or os.getppid() != server.pid:  # it died before it was asked for a signal, which never comes now
        sys.exit("the reward server ended")


def score_chunk(lane: int, samples: bytes, start: int, stop: int) -> tuple[list[Outcome], float]:
    """Score the samples start .. stop-1 of a pickled list with the function `lane`; see Judge.outcomes.

    Returns:
        One outcome a sample that was scored (at least one), and the seconds they took together.

    Raises:
        BatchFailed: a call with the whole batch failed.
    """
    stretch = pickle.loads(samples)[start:stop]  # noqa: S301 - from the run's process, by way of the server
    judge = _process.lanes[lane]
    if isinstance(judge, str):
        return [Outcome({}, None, judge)] * len(stretch), 0.0
    began = time.perf_counter()
    return judge.outcomes(stretch), time.perf_counter() - began

"""The isolated scoring pool, as the run sees it (design contract 11: rewards are strangers)."""

import contextlib
import itertools
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from multiprocessing import Pipe
from pathlib import Path
from types import TracebackType

import rl_core
from rl_core.config.training import RewardConfig
from rl_core.rewards.messages import Chunk, PoolOrder, Report
from rl_core.rewards.registry import resolve_reward
from rl_core.rewards.sample import RewardSample
from rl_core.types import Score

MAX_CHUNK = 64
"""Samples that travel together at most."""

CHUNK_SECONDS = 0.02
"""Expected work of a chunk: a fast reward gets large ones, a slow one single samples as the responses finish."""

_CLOSE_SECONDS = 20


class RewardPool:
    """Scores samples in processes of their own, beside generation. A context manager; enter it before the engine.

    A call that hangs, crashes, raises, takes too much memory or returns no finite numbers costs its own sample: that
    one's Score has an `error` and no components. What a sample scores depends on the sample alone, not on the order of
    arrival, its neighbours or the number of processes.
    """

    def __init__(self, config: RewardConfig) -> None:
        """Raises ValueError as resolve_reward does; starts nothing."""
        self._spec = resolve_reward(config)
        self._config = config
        self._lock = threading.Lock()
        self._waiting: list[tuple[RewardSample, Future[Score]]] = []
        self._travelling: dict[int, dict[int, Future[Score]]] = {}
        self._numbers = itertools.count()
        self._seconds_a_call: float | None = None
        self._flushed = False
        self._closing = False
        self._end: str | None = None

    @property
    def has_parser(self) -> bool:
        """Whether scores carry the answer that was read from the response."""
        return self._spec.has_parser

    def __enter__(self) -> "RewardPool":
        self._connection, server_end = Pipe()
        with server_end:
            self._server = _start_server(server_end.fileno())
        order = PoolOrder(
            spec=self._spec,
            workers=self._config.workers,
            timeout_seconds=self._config.timeout_seconds,
            memory_limit_bytes=int(self._config.memory_limit_gib * 2**30),
        )
        self._connection.send(order)
        self._reader = threading.Thread(target=self._read_reports, name="reward-reports", daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def submit(self, sample: RewardSample) -> "Future[Score]":
        """Hand in a sample; its score follows. A fast reward may wait for more samples, until `flush`.

        Raises:
            RuntimeError: the reward server is gone.
        """
        future: Future[Score] = Future()
        with self._lock:
            if self._end is not None:
                raise RuntimeError(self._end)
            self._flushed = False
            self._waiting.append((sample, future))
            self._send_what_is_due()
        return future

    def flush(self) -> None:
        """No more samples come for now: score what waits."""
        with self._lock:
            self._flushed = True
            self._send_what_is_due()

    def score_all(self, samples: Sequence[RewardSample]) -> list[Score]:
        """Scores in the order of the samples; waits for them."""
        futures = [self.submit(sample) for sample in samples]
        self.flush()
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the processes, those in the middle of a call too; scores that have not come are cancelled."""
        if self._closing:
            return
        with self._lock:
            self._closing = True
            with contextlib.suppress(BrokenPipeError):  # the server is gone already
                self._connection.send(None)
        try:
            self._server.wait(timeout=_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._reader.join()
        self._connection.close()

    def _send_what_is_due(self) -> None:
        while self._waiting:
            size = self._chunk_size()
            if size is None or (len(self._waiting) < size and not self._flushed):
                return
            chunk, self._waiting = self._waiting[:size], self._waiting[size:]
            self._send(chunk)

    def _chunk_size(self) -> int | None:
        """Samples that the next chunk needs; None to hold all back. Until the first report tells how long a call
        takes, one single sample a process is sent."""
        if self._seconds_a_call is None:
            return 1 if len(self._travelling) < self._config.workers else None
        return max(1, min(MAX_CHUNK, int(CHUNK_SECONDS / max(self._seconds_a_call, 1e-9))))

    def _send(self, waiting: Sequence[tuple[RewardSample, "Future[Score]"]]) -> None:
        number = next(self._numbers)
        self._travelling[number] = dict(enumerate(future for _, future in waiting))
        samples = pickle.dumps([sample for sample, _ in waiting], protocol=pickle.HIGHEST_PROTOCOL)
        with contextlib.suppress(BrokenPipeError):  # the reader sees the end too, and tells those who wait
            self._connection.send(Chunk(number=number, count=len(waiting), samples=samples))

    def _read_reports(self) -> None:
        try:
            while True:
                self._take(self._connection.recv())
        except (EOFError, ConnectionResetError):
            self._abandon()

    def _take(self, report: Report) -> None:
        """Deliver the outcomes and let the next chunks go."""
        with self._lock:
            travelling = self._travelling[report.chunk]
            futures = [travelling.pop(report.start + offset) for offset in range(len(report.outcomes))]
            if not travelling:
                del self._travelling[report.chunk]
            seconds = report.seconds / len(report.outcomes)
            # A rise counts at once, a fall by and by: one long call among short ones is soon forgotten.
            self._seconds_a_call = max(seconds, 0.5 * (self._seconds_a_call or 0.0))
            self._send_what_is_due()
        for future, outcome in zip(futures, report.outcomes, strict=True):
            future.set_result(Score(components=outcome.components, parsed=outcome.parsed, error=outcome.error))

    def _abandon(self) -> None:
        """The server has ended: on request, or against all plans."""
        with self._lock:
            asked = self._closing
            self._end = "the reward pool is closed" if asked else f"the reward server ended{self._exit_words()}"
            futures = [future for travelling in self._travelling.values() for future in travelling.values()]
            futures += [future for _, future in self._waiting]
            self._travelling, self._waiting = {}, []
        for future in futures:
            if asked:
                future.cancel()
            else:
                future.set_exception(RuntimeError(self._end))

    def _exit_words(self) -> str:
        code = self._server.wait()
        return f" with exit code {code}; what it printed last says why"


def _start_server(connection: int) -> "subprocess.Popen[bytes]":
    """Spawn the server with one end of the connection, in a session of its own: Ctrl-C in a terminal and signals to the
    run's process group are for the run, which ends its step first."""
    command = [sys.executable, "-P", "-m", "rl_core.rewards.server", str(connection)]
    return subprocess.Popen(
        command, pass_fds=[connection], env=_server_environment(), stdin=subprocess.DEVNULL, start_new_session=True
    )


def _server_environment() -> dict[str, str]:
    """This process's environment, with this rl_core, one thread a process beside the generating ones, and an order of
    sets and dicts that is the same in every run."""
    root = str(Path(rl_core.__file__).parent.parent)
    search = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(search), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}

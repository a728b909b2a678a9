"""The reward pool: scores samples in isolated processes (docs/architecture.md, "Rewards are isolated")."""

import contextlib
import itertools
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from multiprocessing import Pipe
from pathlib import Path
from types import TracebackType

import rl_core
from rl_core.config.reward import RewardConfig
from rl_core.events import LogEvent
from rl_core.rewards.messages import BatchRetry, Chunk, PoolOrder, Report
from rl_core.rewards.mixture import PendingScore
from rl_core.rewards.registry import resolve_rewards
from rl_core.rewards.sample import RewardSample
from rl_core.rewards.sample_queue import SampleQueue
from rl_core.types import Score

IMAGES_VARIABLE = "SIGHTLINE_IMAGES"
"""Environment variable with the path of the prepared images, for reward functions: `rl_core.data.images.ImageStore`
opens that file."""

_CLOSE_SECONDS = 20

_SERVER_IS_GONE = (BrokenPipeError, ConnectionResetError)
"""What sending to a server that has ended raises; the second one if it left something unread."""

_LOG = logging.getLogger(__name__)


class RewardPool:
    """Scores samples in processes of their own while the generator works. A context manager; enter it before the
    generator starts.

    A call that hangs, crashes, raises, takes too much memory or does not return finite numbers costs its own sample:
    the Score of this sample has an `error` and no components. A sample's score depends on the sample alone, not on the
    order of arrival, on other samples or on the number of processes. The exception is a function of REWARD_TYPE batch,
    which gets all samples at once, ordered by prompt uid and sample index.
    """

    def __init__(
        self, config: RewardConfig, *, log_event: LogEvent | None = None, image_store: Path | None = None
    ) -> None:
        """Starts nothing.

        Args:
            config: The functions and their limits.
            log_event: Called for every batch that failed.
            image_store: The file of the prepared images, for functions that look at them; they find its path in the
                environment variable SIGHTLINE_IMAGES.

        Raises:
            ValueError: the configuration names a function that cannot be found; see resolve_rewards.
        """
        self._routing = resolve_rewards(config)
        self._config = config
        self._log_event = log_event
        self._image_store = image_store
        self._lock = threading.Lock()
        self._queues = [
            SampleQueue(spec, workers=config.workers, async_calls=config.async_calls) for spec in self._routing.specs
        ]
        self._numbers = itertools.count()
        self._closing = False
        self._end: str | None = None
        self._cause: Exception | None = None

    def has_parser(self, data_source: str) -> bool:
        """Whether the scores of this source's samples carry the answer that was read from the response."""
        route = self._routing.route_of(data_source)
        return route is not None and route.reader is not None

    def __enter__(self) -> "RewardPool":
        self._connection, server_end = Pipe()
        with server_end:
            self._server = _start_server(server_end.fileno(), _server_environment(self._image_store))
        self._connection.send(self._order())
        self._reader = threading.Thread(target=self._read_reports, name="reward-reports", daemon=True)
        self._reader.start()
        return self

    def _order(self) -> PoolOrder:
        return PoolOrder(
            specs=self._routing.specs,
            workers=self._config.workers,
            timeout_seconds=self._config.timeout_seconds,
            batch_timeout_seconds=self._config.batch_timeout_seconds,
            load_timeout_seconds=self._config.load_timeout_seconds,
            memory_limit_bytes=int(self._config.memory_limit_gib * 2**30),
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def submit(self, sample: RewardSample) -> "Future[Score]":
        """Have a sample scored; the future gets its score. Samples of a fast reward may be held back until `flush`, and
        samples of a reward of REWARD_TYPE batch always are.

        Raises:
            RuntimeError: the reward server has ended, or its reports cannot be processed any more.
        """
        route = self._routing.route_of(sample.data_source)
        if route is None:
            return _failed(f"no reward for data source {sample.data_source!r}: name it in reward.by_source")
        with self._lock:
            if self._end is not None:
                raise self._no_scores_error()
            results = [self._queues[term.function_index].add(sample) for term in route.terms]
            for term in route.terms:
                self._send_what_is_due(term.function_index)
        return PendingScore(route, results).score

    def flush(self) -> None:
        """No more samples come for now: score those that were held back."""
        with self._lock:
            for index, queue in enumerate(self._queues):
                queue.flush()
                self._send_what_is_due(index)

    def score_all(self, samples: Sequence[RewardSample]) -> list[Score]:
        """Scores in the order of the samples; waits for them."""
        futures = [self.submit(sample) for sample in samples]
        self.flush()
        return [future.result() for future in futures]

    def close(self) -> None:
        """End all processes, even in the middle of a call, and cancel the scores that have not come."""
        if self._closing:
            return
        with self._lock:
            self._closing = True
            with contextlib.suppress(*_SERVER_IS_GONE):
                self._connection.send(None)
        self._wait_for_server()
        self._reader.join()
        self._connection.close()

    def _wait_for_server(self) -> int:
        """Wait for the server's exit, and kill it if it does not exit by itself. Returns its exit code."""
        try:
            return self._server.wait(timeout=_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._server.kill()
            return self._server.wait()

    def _send_what_is_due(self, function_index: int) -> None:
        while samples := self._queues[function_index].next_chunk(number := next(self._numbers)):
            pickled = pickle.dumps(samples, protocol=pickle.HIGHEST_PROTOCOL)
            with contextlib.suppress(*_SERVER_IS_GONE):  # the reading thread notices it too, and fails the futures
                self._connection.send(
                    Chunk(number=number, function_index=function_index, count=len(samples), samples=pickled)
                )

    def _read_reports(self) -> None:
        """The reading thread. It must not end silently: the futures of all pending scores depend on it."""
        try:
            for message in self._messages():
                if isinstance(message, BatchRetry):
                    self._log_retry(message)
                else:
                    self._take(message)
        except Exception as error:  # noqa: BLE001 - most likely the disk with the event log is full
            self._server.kill()  # first, because a thread that is stuck in sending to the server holds the lock
            self._abandon(error)
        else:
            self._abandon(None)

    def _messages(self) -> Iterator[Report | BatchRetry]:
        """Messages of the server until it ends, which is an OSError if it happens in the middle of a message."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                yield self._connection.recv()

    def _take(self, report: Report) -> None:
        """Deliver the results and send the next chunks."""
        with self._lock:
            futures = self._queues[report.function_index].take_report(report)
        # The queue no longer knows these futures, so nothing that may fail comes before they have their results.
        for future, result in zip(futures, report.results, strict=True):
            future.set_result(result)
        with self._lock:
            self._send_what_is_due(report.function_index)

    def _log_retry(self, retry: BatchRetry) -> None:
        name = self._routing.specs[retry.function_index].name
        _LOG.warning("reward %s failed on a batch of %d (%s); trying one by one", name, retry.count, retry.reason)
        if self._log_event is not None:
            self._log_event("reward_batch_retried", function=name, samples=retry.count, reason=retry.reason)

    def _abandon(self, cause: Exception | None) -> None:
        """There are no more reports: the reading thread failed with `cause`, or the server has ended (None)."""
        with self._lock:
            asked = self._closing
            self._end = "the reward pool is closed" if asked else self._end_words(cause)
            self._cause = cause
            futures = [future for queue in self._queues for future in queue.abandon()]
        for future in futures:
            if asked:
                future.cancel()
            else:
                future.set_exception(self._no_scores_error())

    def _end_words(self, cause: Exception | None) -> str:
        if cause is None:
            return f"the reward server ended with exit code {self._wait_for_server()}; its last output says why"
        return (
            f"the reports of the reward server cannot be processed: {type(cause).__name__}: {cause}; "
            "fix this (if the disk is full, free some space), then start the run again to continue"
        )

    def _no_scores_error(self) -> RuntimeError:
        """The error that says why there are no more scores; each caller gets its own exception object."""
        error = RuntimeError(self._end)
        error.__cause__ = self._cause
        return error


def _failed(reason: str) -> "Future[Score]":
    future: Future[Score] = Future()
    future.set_result(Score(components={}, error=reason))
    return future


def _start_server(connection: int, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start the server with one end of the connection. It has a session of its own, so that Ctrl-C in a terminal and
    signals to the process group reach the run alone, which first finishes its step."""
    command = [sys.executable, "-P", "-m", "rl_core.rewards.server", str(connection)]
    return subprocess.Popen(
        command, pass_fds=[connection], env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )


def _server_environment(image_store: Path | None) -> dict[str, str]:
    """This process's environment with three changes: rl_core is found where this process has it; each process has one
    thread, because the generator needs the cores; and hashes, with them the order of sets, are equal in every run."""
    images = {} if image_store is None else {IMAGES_VARIABLE: str(image_store.absolute())}
    root = str(Path(rl_core.__file__).parent.parent)
    search = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | images | {"PYTHONPATH": os.pathsep.join(search), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}

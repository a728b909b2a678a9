"""The isolated scoring pool, as the run sees it (docs/architecture.md, "Rewards are isolated")."""

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
from rl_core.rewards.lane import Lane
from rl_core.rewards.messages import BatchRetry, Chunk, PoolOrder, Report
from rl_core.rewards.mixture import PendingScore
from rl_core.rewards.registry import resolve_rewards
from rl_core.rewards.sample import RewardSample
from rl_core.types import Score

IMAGES_VARIABLE = "SIGHTLINE_IMAGES"
"""Names the file of prepared images to reward functions: `rl_core.data.images.ImageStore` opens it."""

_CLOSE_SECONDS = 20

_SERVER_IS_GONE = (BrokenPipeError, ConnectionResetError)
"""What sending to it raises then; the second one when it left something unread."""

_LOG = logging.getLogger(__name__)


class RewardPool:
    """Scores samples in processes of their own, beside generation. A context manager; enter it before the engine.

    A call that hangs, crashes, raises, takes too much memory or returns no finite numbers costs its own sample: that
    one's Score has an `error` and no components. What a sample scores depends on the sample alone, not on the order of
    arrival, its neighbours or the number of processes; but a function of REWARD_TYPE batch sees the whole batch at
    once, the samples ordered by prompt uid and sample index.
    """

    def __init__(
        self, config: RewardConfig, *, log_event: LogEvent | None = None, image_store: Path | None = None
    ) -> None:
        """Starts nothing.

        Args:
            config: The functions and their limits.
            log_event: Takes the batches that failed.
            image_store: The file of the prepared images, for functions that look at them; they find its path in the
                environment variable SIGHTLINE_IMAGES.

        Raises:
            ValueError: as resolve_rewards does.
        """
        self._routing = resolve_rewards(config)
        self._config = config
        self._log_event = log_event
        self._image_store = image_store
        self._lock = threading.Lock()
        self._lanes = [
            Lane(spec, workers=config.workers, async_calls=config.async_calls) for spec in self._routing.specs
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
        """Hand in a sample; its score follows. A fast reward may wait for more samples, until `flush`; one of
        REWARD_TYPE batch does.

        Raises:
            RuntimeError: the reward server is gone, or its reports cannot be taken any more.
        """
        route = self._routing.route_of(sample.data_source)
        if route is None:
            return _failed(f"no reward for data source {sample.data_source!r}: name it in reward.by_source")
        with self._lock:
            if self._end is not None:
                raise self._loss()
            outcomes = [self._lanes[term.lane].add(sample) for term in route.terms]
            for term in route.terms:
                self._send_what_is_due(term.lane)
        return PendingScore(route, outcomes).score

    def flush(self) -> None:
        """No more samples come for now: score what waits."""
        with self._lock:
            for number, lane in enumerate(self._lanes):
                lane.flush()
                self._send_what_is_due(number)

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
            with contextlib.suppress(*_SERVER_IS_GONE):
                self._connection.send(None)
        self._wait_for_server()
        self._reader.join()
        self._connection.close()

    def _wait_for_server(self) -> int:
        """Its exit code. It is killed if it does not end by itself."""
        try:
            return self._server.wait(timeout=_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._server.kill()
            return self._server.wait()

    def _send_what_is_due(self, lane: int) -> None:
        while samples := self._lanes[lane].depart(number := next(self._numbers)):
            pickled = pickle.dumps(samples, protocol=pickle.HIGHEST_PROTOCOL)
            with contextlib.suppress(*_SERVER_IS_GONE):  # the reader sees the end too, and tells those who wait
                self._connection.send(Chunk(number=number, lane=lane, count=len(samples), samples=pickled))

    def _read_reports(self) -> None:
        """The reader's thread. Whoever waits for a score waits for it, so whatever ends it is told to them."""
        try:
            for message in self._messages():
                if isinstance(message, BatchRetry):
                    self._note(message)
                else:
                    self._take(message)
        except Exception as error:  # noqa: BLE001 - the thread's last door; a full disk under the event log, above all
            self._server.kill()  # first: whoever is stuck in sending to it holds the lock
            self._abandon(error)
        else:
            self._abandon(None)

    def _messages(self) -> Iterator[Report | BatchRetry]:
        """What the server sends, until it ends: also in the middle of a message, which is an OSError."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                yield self._connection.recv()

    def _take(self, report: Report) -> None:
        """Deliver the outcomes and let the next chunks go."""
        with self._lock:
            futures = self._lanes[report.lane].arrive(report)
        # Their lane has forgotten these, so nothing that may fail comes in between.
        for future, outcome in zip(futures, report.outcomes, strict=True):
            future.set_result(outcome)
        with self._lock:
            self._send_what_is_due(report.lane)

    def _note(self, retry: BatchRetry) -> None:
        name = self._routing.specs[retry.lane].name
        _LOG.warning("reward %s failed on a batch of %d (%s); trying one by one", name, retry.count, retry.reason)
        if self._log_event is not None:
            self._log_event("reward_batch_retried", function=name, samples=retry.count, reason=retry.reason)

    def _abandon(self, cause: Exception | None) -> None:
        """No report comes any more: `cause` ended their reader, or the server has ended, asked or against all plans."""
        with self._lock:
            asked = self._closing
            self._end = "the reward pool is closed" if asked else self._end_words(cause)
            self._cause = cause
            futures = [future for lane in self._lanes for future in lane.abandon()]
        for future in futures:
            if asked:
                future.cancel()
            else:
                future.set_exception(self._loss())

    def _end_words(self, cause: Exception | None) -> str:
        if cause is None:
            return f"the reward server ended with exit code {self._wait_for_server()}; what it printed last says why"
        return (
            f"the reports of the reward server cannot be taken: {type(cause).__name__}: {cause}; "
            "mend this (on a full disk, free some), then start the run again to continue"
        )

    def _loss(self) -> RuntimeError:
        """Why there are no scores any more, made anew for each who is told."""
        loss = RuntimeError(self._end)
        loss.__cause__ = self._cause
        return loss


def _failed(reason: str) -> "Future[Score]":
    future: Future[Score] = Future()
    future.set_result(Score(components={}, error=reason))
    return future


def _start_server(connection: int, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Spawn the server with one end of the connection, in a session of its own: Ctrl-C in a terminal and signals to the
    run's process group are for the run, which ends its step first."""
    command = [sys.executable, "-P", "-m", "rl_core.rewards.server", str(connection)]
    return subprocess.Popen(
        command, pass_fds=[connection], env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )


def _server_environment(image_store: Path | None) -> dict[str, str]:
    """This process's environment, with this rl_core, one thread a process beside the generating ones, and an order of
    sets and dicts that is the same in every run."""
    images = {} if image_store is None else {IMAGES_VARIABLE: str(image_store.absolute())}
    root = str(Path(rl_core.__file__).parent.parent)
    search = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | images | {"PYTHONPATH": os.pathsep.join(search), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}

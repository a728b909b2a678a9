"""The program of one rank: a LocalWorker in the process of a Ray actor. Loads torch only when it is opened."""

import logging
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any, Final

import ray

from rl_core.distributed.interface import free_meeting
from rl_core.distributed.sendable import sendable
from rl_core.environment import disable_telemetry, share_cores, threads_of_a_worker
from rl_core.families.own import keep_own_family
from rl_core.progress import TALLY
from rl_core.redaction import redact_logs
from rl_core.types import GenerationRequest, RequestFeed, Sampling
from rl_core.workers.inbox import Inbox
from rl_core.workers.messages import Logged, Process, Pulse, RankAnswer, RankOpening, WorkerCall
from rl_core.workers.outbox import Outbox
from rl_core.workers.versions import versions

if TYPE_CHECKING:
    from rl_core.workers.local_worker import LocalWorker
    from rl_core.workers.split_workers import GeneratingWorker

_MOST_LOGS: Final = 1000
"""Log records that are kept until they are sent; of more the oldest are dropped."""


_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM})


class RankActor:
    """Answers the calls of a RayWorkerGroup.

    Messages are pickled here and not by Ray, so that the run knows how much it sends. Methods run in threads of their
    own ("concurrency groups" in Ray): the worker's calls in one, the writing of snapshots in another one, and in
    further ones the short calls that are answered in the middle of the others.
    """

    def __init__(self) -> None:
        self._worker: LocalWorker | GeneratingWorker | None = None
        self._outbox = Outbox()
        self._inbox = Inbox()
        self._logs = _KeptLogs()
        self._finished = 0
        _hide_working_directory()
        # The run decides when its workers end. Not SIG_IGN, which child processes would inherit.
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)

    def process(self) -> Process:
        """Where this rank runs."""
        return Process(
            pid=os.getpid(),
            host=socket.gethostname(),
            node_id=ray.get_runtime_context().get_node_id(),
            versions=versions(),
        )

    def meeting(self, *, is_on_one_machine: bool) -> str:
        """An address of this machine at which the ranks can meet."""
        return free_meeting("127.0.0.1" if is_on_one_machine else ray.util.get_node_ip_address())

    def open(self, message: bytes) -> bytes:
        """Open the worker; `message` is a RankOpening."""
        return self._answer(lambda: self._open(pickle.loads(message)))  # noqa: S301 - our own

    def call(self, message: bytes) -> bytes:
        """Execute a WorkerCall."""
        return self._answer(lambda: self._call(pickle.loads(message)))  # noqa: S301 - our own

    def generate(self, number: int, message: bytes) -> bytes:
        """Generate until the end, or until `stop`; `take` gives the rollouts meanwhile. `message` is the requests, the
        sampling, and whether `feed` brings further requests."""
        return self._answer(lambda: self._generate(number, message))

    def feed(self, number: int, place: int, message: bytes) -> None:
        """Further requests of generation `number`, or None after the last ones; `place` counts these messages."""
        self._inbox.put(number, place, pickle.loads(message))  # noqa: S301 - our own

    def take(self, number: int) -> bytes:
        """The rollouts of generation `number` since the last call; waits until there is one."""
        return pickle.dumps(self._outbox.take(number), protocol=pickle.HIGHEST_PROTOCOL)

    def stop(self, number: int) -> None:
        """End generation `number` after its next rollout."""
        self._outbox.stop(number)

    def pulse(self) -> Pulse:
        """A sign of life."""
        return Pulse(progress=self._finished + self._logs.count, tally=TALLY.copy(), logs=self._logs.take())

    def stacks(self) -> str:
        """What every thread of this process is doing."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return "\n".join(
            f"Thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
            for ident, frame in sys._current_frames().items()
            if ident != threading.get_ident()
        )

    def _answer(self, call: Callable[[], Any]) -> bytes:
        """The end of a call as bytes: a RankAnswer."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)  # Ray blocks them, and child processes would inherit that
        value = sent = cause = None
        try:
            value = call()
        except Exception as error:  # noqa: BLE001 - the run raises it, whatever it is
            sent, cause = sendable(error), error.__cause__ and sendable(error.__cause__)
            sent.add_note(f"In the worker's process:\n{''.join(traceback.format_exception(error))}")
        self._finished += 1
        version = 0 if self._worker is None else self._worker.policy_version
        answer = RankAnswer(
            value=value,
            error=sent,
            cause=cause,
            policy_version=version,
            tally=TALLY.copy(),
            logs=self._logs.take(),
        )
        return pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)

    def _open(self, message: RankOpening) -> None:
        _prepare(message)
        self._logs.listen()
        self._worker = _worker_of(message)

    def _call(self, call: WorkerCall) -> Any:
        assert self._worker is not None, "opened first"
        return getattr(self._worker, call.method)(*call.arguments, **call.options)

    def _generate(self, number: int, message: bytes) -> None:
        assert self._worker is not None, "opened first"
        self._outbox.begin(number)
        self._inbox.begin(number)
        try:
            arguments: tuple[Sequence[GenerationRequest], Sampling, bool] = pickle.loads(message)  # noqa: S301 - our own
            first, sampling, is_fed = arguments
            requests = RequestFeed(first, self._inbox.further) if is_fed else first
            rollouts = self._worker.generate(requests, sampling)
            with closing(rollouts) if isinstance(rollouts, Generator) else nullcontext():
                for rollout in rollouts:
                    if not self._outbox.put(rollout):
                        return
        finally:
            self._outbox.end()


def _hide_working_directory() -> None:
    """Let `sys.path` begin as that of a run does. Ray puts the run's working directory and folders of its own before
    it, and a file there, such as `statistics.py`, would be taken for a library."""
    # The path began with the folder of Ray's program.
    last = next((number for number, path in enumerate(sys.path) if path.endswith("/ray/_private/workers")), -1)
    bundled = [path for path in sys.path[: last + 1] if path.endswith("/ray/thirdparty_files")]
    sys.path[:] = [*sys.path[last + 1 :], *bundled]


def _worker_of(message: RankOpening) -> "LocalWorker | GeneratingWorker":
    if message.role == "generate":
        from rl_core.workers.split_workers import GeneratingWorker

        return GeneratingWorker(message.opening, message.place)
    from rl_core.workers.local_worker import LocalWorker
    from rl_core.workers.split_workers import TrainingWorker

    kind = TrainingWorker if message.role == "train" else LocalWorker
    return kind(message.opening, place=message.place)


def _prepare(message: RankOpening) -> None:
    """Set what libraries read when they are loaded. The ranks of a machine share its cores."""
    disable_telemetry()
    keep_own_family(message.opening.config.model.family)
    os.environ.pop("OMP_NUM_THREADS", None)  # Ray has set it to the number of CPUs that the actor has reserved
    threads = threads_of_a_worker(message.opening.config.cluster.devices, fixed=message.threads)
    os.environ["OMP_NUM_THREADS"] = f"{threads}"
    share_cores()


class _KeptLogs(logging.Handler):
    """Keeps the text of log records until they are sent: the records of this project, and warnings of other
    libraries."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: deque[Logged] = deque(maxlen=_MOST_LOGS)
        self.count = 0

    def listen(self) -> None:
        """From now on, keep the records of this process, without secrets."""
        redact_logs()
        logging.captureWarnings(True)  # as in the process of a run, whose log is the place of libraries' warnings
        logging.getLogger().addHandler(self)
        logging.getLogger("rl_core").setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        self._kept.append(Logged(name=record.name, level=record.levelno, text=self.format(record)))

    def take(self) -> list[Logged]:
        """The records since the last call."""
        return [self._kept.popleft() for _ in range(len(self._kept))]

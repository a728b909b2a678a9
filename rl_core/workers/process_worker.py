"""A worker in a process of its own, so that a failure, above all a broken CUDA context, ends with that process."""

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from rl_core.checkpoints.manifest import FileRecord
from rl_core.config.cluster import ClusterConfig
from rl_core.config.run import RunConfig
from rl_core.progress import Progress
from rl_core.training.batches import UpdateBatch, UpdateResult
from rl_core.types import Float32Array, GenerationRequest, Group, RolloutStream, Sampling, SupervisedExample
from rl_core.workers.folders import WorkerFolders
from rl_core.workers.messages import Call, Logged, Opening, Raised, Returned, StopYielding, Yielded
from rl_core.workers.source_path import with_these_sources
from rl_core.workers.usage import Usage

logger = logging.getLogger(__name__)

_END_SECONDS = 30.0
"""A worker that takes longer to end its generator is killed."""


class WorkerDied(RuntimeError):
    """The process of a worker has ended, or its connection is unusable. A new worker can be opened in its place."""


class ProcessWorker:
    """Implements WorkerGroup with a LocalWorker in another process.

    The process ends when this one ends, in whatever way. Signals from a terminal do not reach it: this process decides
    when it stops.
    """

    generates_beside_training = False

    def __init__(
        self,
        config: RunConfig,
        folders: WorkerFolders,
        *,
        total_optimizer_steps: int,
        total_critic_steps: int = 0,
        progress: Progress,
    ) -> None:
        """Start the process and load the policy in it. The arguments are the same as LocalWorker's."""
        self._cluster = config.cluster
        self._progress = progress
        self._generator_has_started = False
        self._policy_version = 0
        self._generation: object | None = None  # identifies the unfinished generation, if there is one
        self._is_broken = False
        here, there = socket.socketpair()
        snapshots_here, snapshots_there = socket.socketpair()
        with there, snapshots_there:
            descriptors = [there.fileno(), snapshots_there.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "rl_core.workers.serving", *map(str, descriptors)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": with_these_sources()},
            )
        self._connection: Connection[Any, Any] = Connection(here.detach())
        # Snapshots are written during other calls, so they have a connection of their own.
        self._snapshots: Connection[Any, Any] = Connection(snapshots_here.detach())
        opening = Opening(
            config=config,
            folders=folders,
            total_optimizer_steps=total_optimizer_steps,
            total_critic_steps=total_critic_steps,
        )
        try:
            self._send(opening)
            self._result("start")
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The id of the worker's process."""
        return self._process.pid

    @property
    def cluster(self) -> ClusterConfig:
        """See WorkerGroup."""
        return self._cluster

    @property
    def policy_version(self) -> int:
        """See WorkerGroup."""
        return self._policy_version

    def wake(self) -> None:
        """See WorkerGroup."""
        if self._generator_has_started:
            self._call("wake")
            return
        with self._progress.wait("start the generator (vLLM) in the worker's process"):
            self._call("wake")
        self._generator_has_started = True

    def sleep(self) -> None:
        """See WorkerGroup."""
        self._call("sleep")

    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> RolloutStream:
        """See WorkerGroup."""
        if self._generation is not None:
            raise RuntimeError("cannot generate: finish or close the earlier generation")
        self._send(Call(method="generate", arguments=(requests, sampling)))
        generation = self._generation = object()
        try:
            while not isinstance(message := self._receive("generate"), Returned):
                yield message.value
        finally:
            if self._generation is generation:
                self._end_generation()

    def old_log_probs(self, batches: Sequence[Sequence[Group]]) -> list[list[list[Float32Array]]]:
        """See WorkerGroup."""
        found: list[list[list[Float32Array]]] = self._call("old_log_probs", batches)
        return found

    def reference_log_probs(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """See WorkerGroup."""
        found: list[list[Float32Array]] = self._call("reference_log_probs", groups)
        return found

    def full_kl(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """See WorkerGroup."""
        found: list[list[Float32Array]] = self._call("full_kl", groups)
        return found

    def values(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """See WorkerGroup."""
        found: list[list[Float32Array]] = self._call("values", groups)
        return found

    def update(self, batch: UpdateBatch) -> UpdateResult:
        """See WorkerGroup."""
        result: UpdateResult = self._call("update", batch)
        return result

    def imitate(self, examples: Sequence[SupervisedExample]) -> Mapping[str, float]:
        """See WorkerGroup."""
        metrics: Mapping[str, float] = self._call("imitate", examples)
        return metrics

    def load_policy(self, folder: Path) -> None:
        """See WorkerGroup."""
        self._call("load_policy", folder)

    def load_reference(self, folder: Path) -> None:
        """See WorkerGroup."""
        self._call("load_reference", folder)

    def load_critic(self, folder: Path) -> None:
        """See WorkerGroup."""
        self._call("load_critic", folder)

    def save_state(self, folder: Path, *, model_only: bool, probe: Sequence[Group]) -> Mapping[str, FileRecord]:
        """See WorkerGroup."""
        written: Mapping[str, FileRecord] = self._call("save_state", folder, model_only=model_only, probe=probe)
        return written

    def take_snapshot(self, *, model_only: bool, probe: Sequence[Group]) -> None:
        """See WorkerGroup."""
        self._call("take_snapshot", model_only=model_only, probe=probe)

    def write_snapshot(self, folder: Path) -> Mapping[str, FileRecord]:
        """See WorkerGroup."""
        try:
            self._snapshots.send(Call(method="write_snapshot", arguments=(folder,)))
            message: Raised | Returned = self._snapshots.recv()
        except (EOFError, OSError) as error:
            raise WorkerDied(f"the worker's process {self.pid} ended before it had written {folder}") from error
        if isinstance(message, Raised):
            raise message.error from message.cause
        written: Mapping[str, FileRecord] = message.value
        return written

    def load_state(self, folder: Path, *, model_only: bool) -> None:
        """See WorkerGroup."""
        self._call("load_state", folder, model_only=model_only)

    def load_saved_policy(self, folder: Path) -> None:
        """See WorkerGroup."""
        self._call("load_saved_policy", folder)

    def export(self, folder: Path) -> None:
        """See WorkerGroup."""
        self._call("export", folder)

    def usage(self) -> Usage:
        """See WorkerGroup."""
        usage: Usage = self._call("usage")
        return usage

    def close(self) -> None:
        """End the process; it is killed if it takes too long."""
        self._snapshots.close()
        self._connection.close()  # tells the process that there are no more calls
        self._ended()

    def _ended(self) -> int:
        """Wait until the process has ended, and kill it with its children if it takes too long. Returns its exit
        status."""
        try:
            return self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            logger.warning("the worker's process %d did not end within %g s: it is killed", self.pid, _END_SECONDS)
            os.killpg(self.pid, signal.SIGKILL)
            return self._process.wait()

    def _call(self, method: str, *arguments: object, **options: object) -> Any:
        self._end_generation()
        self._send(Call(method=method, arguments=arguments, options=options))
        return self._result(method)

    def _result(self, method: str) -> Any:
        message = self._receive(method)
        assert isinstance(message, Returned), "only a generation yields"
        return message.value

    def _end_generation(self) -> None:
        """Stop a generation that was left early, and drop what the process still sends of it."""
        if self._generation is None:
            return
        self._send(StopYielding())
        while not isinstance(self._receive("generate"), Returned):
            pass

    def _send(self, message: object) -> None:
        if self._is_broken:
            raise WorkerDied(f"a call to the worker's process {self.pid} was interrupted: open a new worker")
        try:
            self._connection.send(message)
        except OSError:
            self._has_died("send")

    def _receive(self, method: str) -> Returned | Yielded:
        """The next answer. Log records that come before it are logged here, and an error of the call is raised here."""
        while True:
            try:
                message: Logged | Yielded | Raised | Returned = self._connection.recv()
            except (EOFError, OSError):
                self._has_died(method)
            except BaseException:
                self._is_broken = True  # the rest of a message that was half read would be taken for the next one
                raise
            if isinstance(message, Logged):
                logging.getLogger(message.name).log(message.level, "%s", message.text)
                continue
            if isinstance(message, Yielded):
                return message
            self._generation = None
            self._policy_version = message.policy_version
            if isinstance(message, Raised):
                raise message.error from message.cause
            return message

    def _has_died(self, method: str) -> NoReturn:
        self._generation = None
        status = self._ended()
        how = f"by signal {-status}" if status < 0 else f"with exit code {status}"
        raise WorkerDied(
            f"the worker's process {self.pid} ended {how} during {method}; its last messages are in the run's log or "
            f"on the terminal. Start the run again to continue from its last checkpoint"
        )

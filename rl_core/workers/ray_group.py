"""The workers that train one model, each in an actor of a Ray cluster. See docs/cluster.md."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from rl_core.config.cluster import ClusterConfig
from rl_core.digests import FileRecord
from rl_core.distributed.place import RankPlace
from rl_core.environment import asked_threads
from rl_core.problem import raise_if_fatal
from rl_core.progress import Progress
from rl_core.training.batches import UpdateBatch, UpdateResult
from rl_core.types import Float32Array, Group, Requests, RolloutStream, Sampling, SupervisedExample
from rl_core.workers.actor_group import ActorGroup
from rl_core.workers.dealing import all_files, deal, deal_update, dealt, merged_update, put_back
from rl_core.workers.folders import Opening
from rl_core.workers.generating import Generation
from rl_core.workers.messages import RankOpening, Role, WorkerCall
from rl_core.workers.protocol import Loaded, Pass, WorkerGroup
from rl_core.workers.ray_cluster import RayCluster
from rl_core.workers.usage import Usage
from rl_core.workers.versions import version_problems, versions

logger = logging.getLogger(__name__)

_MIB: Final = 1 << 20

_MEMBER: Final[Mapping[Role, str]] = {"both": "worker", "train": "training worker", "generate": "generating worker"}
"""What a worker is called in messages."""


class RayWorkerGroup(WorkerGroup):
    """A LocalWorker in each of one or more processes, which may be on several machines.

    Every worker gets every call. Of the calls that compute on groups, each learner gets its own part
    (rl_core.workers.dealing), and the results come back in the caller's order. A learner is one worker, or those that
    compute the same sequences together.
    """

    def __init__(self, opening: Opening, *, progress: Progress) -> None:
        """Start or join the cluster, start a worker on each device, and load the policy in all of them. The folders
        must exist on every machine. Raises ClusterUnavailable, PlanError if a machine has other software, WorkerDied.
        """
        self._cluster = RayCluster(opening.config.cluster)
        self._ranks_per_learner = opening.config.cluster.sequence_parallel_size
        self._progress = progress
        self._generator_has_started = False
        self._generation: Generation | None = None
        self._reported_bytes = 0
        self._group: ActorGroup | None = None
        try:
            self._open(opening)
        except BaseException:
            self.close()
            raise

    def _open(self, opening: Opening) -> None:
        actors = self._cluster.actors()
        self._group = self._opened_group(actors, opening, role="both")
        self._log_hosts(self._group, "train one model")

    def _opened_group(self, actors: Sequence[Any], opening: Opening, *, role: Role) -> ActorGroup:
        """A group of these actors, equally many of each machine, whose workers are open."""
        cluster = self._cluster
        config = cluster.config
        opening = replace(opening, config=opening.config.model_copy(update={"cluster": config}))
        group = ActorGroup(
            actors,
            start_seconds=config.start_timeout_seconds,
            reading_seconds=opening.folders.reading_seconds,
            member=_MEMBER[role],
            hang_seconds=config.hang_timeout_seconds,
            local=cluster.local,
        )
        try:
            group.find_processes()
            if config.address != "local":  # a machine may have come after the preflight
                machines = {process.host: process.versions for process in group.processes}
                raise_if_fatal([*version_problems(machines, here=versions())])
            meeting = group.meeting(is_on_one_machine=config.nodes == 1) if len(group) > 1 else ""
            # A number that was asked for here holds for every worker; else each takes its share of its machine's cores.
            threads = config.threads or asked_threads()
            openings = [
                RankOpening(
                    opening=opening,
                    role=role,
                    place=RankPlace(
                        rank=rank, size=len(group), ranks_per_node=len(group) // config.nodes, meeting=meeting
                    ),
                    threads=threads,
                )
                for rank in range(len(group))
            ]
            group.open(openings)
        except BaseException:
            group.close()
            raise
        return group

    @staticmethod
    def _log_hosts(group: ActorGroup, what: str) -> None:
        hosts = sorted({process.host for process in group.processes})
        logger.info("%d worker(s) on %s %s", len(group), ", ".join(hosts), what)

    @property
    @override
    def cluster(self) -> ClusterConfig:
        return self._cluster.config

    @property
    @override
    def policy_version(self) -> int:
        return self._workers.policy_version

    @override
    def wake(self) -> None:
        if self._generator_has_started:
            self._call("wake")
            return
        generators = len(self._generators) // self.cluster.tensor_parallel_size
        with self._progress.wait(f"start {generators} generator(s) (vLLM) in the workers' processes"):
            self._call("wake")
        self._generator_has_started = True

    @override
    def sleep(self) -> None:
        self._call("sleep")

    @override
    def generate(self, requests: Requests, sampling: Sampling) -> RolloutStream:
        if self._generation is not None and self._generation.is_running:
            raise RuntimeError("cannot generate: finish or close the earlier generation")
        self._generation = Generation(
            self._generators,
            requests,
            sampling,
            dealing=self.cluster.dealing,
            ranks_per_generator=self.cluster.tensor_parallel_size,
        )
        yield from self._generation.rollouts()

    @override
    def compute(self, what: Pass, batches: Sequence[Sequence[Group]]) -> list[list[list[Float32Array]]]:
        deals = [deal(batch, self._learners) for batch in batches]
        parts = [dealt(batch, places) for batch, places in zip(batches, deals, strict=True)]
        calls = [WorkerCall(method="compute", arguments=(what, of_learner)) for of_learner in zip(*parts, strict=True)]
        found = self._call_learners(calls)[:: self._ranks_per_learner]
        return [put_back(results, places) for results, places in zip(zip(*found, strict=True), deals, strict=True)]

    @override
    def update(self, batch: UpdateBatch) -> UpdateResult:
        """Raises WorkersDisagree, too, if the workers' weights have parted."""
        calls = [WorkerCall(method="update", arguments=(part,)) for part in deal_update(batch, self._learners)]
        return merged_update(self._call_learners(calls), ranks_per_learner=self._ranks_per_learner)

    @override
    def imitate(self, examples: Sequence[SupervisedExample]) -> Mapping[str, float]:
        metrics: Mapping[str, float] = self._call("imitate", examples)[0]
        return metrics

    @override
    def load(self, what: Loaded, folder: Path) -> None:
        self._call("load", what, folder)

    @override
    def take_snapshot(self, *, model_only: bool, probe: Sequence[Group], copy: bool) -> None:
        self._call("take_snapshot", model_only=model_only, probe=probe, copy=copy)

    @override
    def write_snapshot(self, folder: Path) -> Mapping[str, FileRecord]:
        return all_files(self._workers.call_concurrently("write_snapshot", folder))

    @override
    def export(self, folder: Path) -> None:
        self._call("export", folder)

    @override
    def usage(self) -> Usage:
        before, self._reported_bytes = self._reported_bytes, self._sent_bytes
        workers = [worker for usage in self._usages() for worker in usage.workers]
        return Usage(workers=workers, sent_mib=(self._reported_bytes - before) / _MIB)

    @override
    def close(self) -> None:
        try:
            if self._group is not None:
                self._group.close()
        finally:
            self._group = None
            self._cluster.close()

    def _usages(self) -> list[Usage]:
        """[worker] -> what it has used."""
        return self._call("usage")

    @property
    def _sent_bytes(self) -> int:
        """Bytes of all messages to the workers so far."""
        return self._workers.sent_bytes

    @property
    def _workers(self) -> ActorGroup:
        assert self._group is not None, "open"
        return self._group

    @property
    def _generators(self) -> ActorGroup:
        """The workers that generate."""
        return self._workers

    @property
    def _learners(self) -> int:
        """Number of learners: workers, or groups of workers that compute the same sequences together."""
        return len(self._workers) // self._ranks_per_learner

    def _call(self, method: str, *arguments: object, **options: object) -> list[Any]:
        self._before(method)
        return self._workers.call(method, *arguments, **options)

    def _call_learners(self, calls: Sequence[WorkerCall]) -> list[Any]:
        """[rank] -> the result of its learner's call."""
        self._before(calls[0].method)
        return self._workers.call_each([call for call in calls for _ in range(self._ranks_per_learner)])

    def _before(self, method: str) -> None:
        """Stop a generation that was left early: its workers are needed for the method."""
        if self._generation is not None:
            self._generation.end()
            self._generation = None

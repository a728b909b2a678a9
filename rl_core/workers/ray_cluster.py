"""The Ray cluster of a run: one that is started on this machine and ends with the run, or one that is joined."""

import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import ray
from ray._private import ray_constants, ray_logging
from ray._private import utils as ray_utils
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rl_core.config.cluster import ClusterConfig
from rl_core.cpu_switches import CPU_ENGINE, CPU_MODEL
from rl_core.environment import ALLOCATOR, TELEMETRY_OFF, with_these_sources
from rl_core.workers.cluster_machines import Room, most_room, room_on_machines
from rl_core.workers.local_ray import LocalRay
from rl_core.workers.node_probe import NodeProbe
from rl_core.workers.rank_actor import RankActor

_CONNECT_SECONDS: Final = 10.0

_FREE_SECONDS: Final = 10.0
"""How long it may take until places are free again that were reserved in vain."""

_LOOK_SECONDS: Final = 0.5

_TAKE_SECONDS: Final = 60.0
"""How long places may take that are known to be free."""

_CONCURRENCY_GROUPS: Final = {"snapshots": 1, "rollouts": 1, "requests": 1, "watch": 2}
"""Ray's groups of an actor's methods that run while a call does, with their numbers of threads."""


class ClusterUnavailable(RuntimeError):
    """The Ray cluster did not start, cannot be joined, or does not have what the run asks for."""


class RayCluster:
    """A Ray cluster with room for the workers of a run. After `actors`, its `config` has the machines and devices that
    the workers have. `local` is the cluster if it was started here."""

    def __init__(self, config: ClusterConfig) -> None:
        """Start or join the cluster. Raises ClusterUnavailable if it does not start within `start_timeout_seconds`, or
        cannot be reached."""
        self.config = config
        self.local: LocalRay | None = None
        self._room: PlacementGroup | None = None
        self._is_joined = False
        logging.getLogger("ray").setLevel(logging.ERROR)
        # Besides what the run itself logs, Ray would print its messages about a lost worker on the terminal, and the
        # last lines of its log about a lost machine.
        ray_logging.stdout_deduplicator.skip_re = re.compile("")
        try:
            if config.address == "local":
                self.local = LocalRay(config)
            self._join(config.address if self.local is None else self.local.address)
        except (OSError, RuntimeError, ValueError) as error:
            self.close()
            if config.address == "local":
                raise ClusterUnavailable(f"no Ray cluster could be started on this machine: {error}") from error
            raise ClusterUnavailable(
                f"no Ray cluster at cluster.address {config.address}: {error}. Start one there (docs/cluster.md), or "
                f"use `local`"
            ) from error
        except BaseException:
            self.close()
            raise

    @property
    def on_gpu(self) -> bool:
        """Whether the workers get a GPU each."""
        if self.config.device == "auto":
            return float(ray.cluster_resources().get("GPU", 0.0)) >= 1.0
        return self.config.device == "cuda"

    def actors(self) -> list[Any]:
        """Start an actor for each rank; consecutive ranks share a machine. Raises ClusterUnavailable if there is no
        room for enough workers within `start_timeout_seconds`."""
        self._reserve()
        remote = ray.remote(concurrency_groups=_CONCURRENCY_GROUPS)(RankActor)
        return [self._started(remote, machine=rank // self.config.devices) for rank in range(self.config.ranks)]

    def probes(self) -> list[Any]:
        """Start a NodeProbe on each machine, where it takes the place of one worker until it is killed. Raises as
        `actors`."""
        self._reserve()
        remote = ray.remote(NodeProbe)
        return [self._started(remote, machine=machine) for machine in range(self.config.nodes)]

    def close(self) -> None:
        """Leave the cluster; one that was started here ends. May be called twice."""
        if self._is_joined:
            if self._room is not None and not (self.local and self.local.has_ended()):
                remove_placement_group(self._room)
            ray.shutdown()
        self._room, self._is_joined = None, False
        if self.local is not None:
            self.local.close()
        self.local = None

    def _join(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        if host and "://" not in address:  # Ray itself would try for more than a minute
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        with _without_rays_handlers():
            ray.init(address=address, configure_logging=False, log_to_driver=False)
        self._is_joined = True

    @property
    def _a_worker(self) -> dict[str, float]:
        """What Ray reserves for a worker."""
        return {"CPU": 1.0, **({"GPU": 1.0} if self.on_gpu else {})}

    def _started(self, remote: Any, *, machine: int) -> Any:
        """An actor in a worker's place on a machine."""
        return remote.options(
            num_cpus=self._a_worker["CPU"],
            num_gpus=self._a_worker.get("GPU", 0.0),
            max_restarts=0,
            max_task_retries=0,
            runtime_env=self._environment(),
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                placement_group=self._room, placement_group_bundle_index=machine
            ),
        ).remote()

    def _reserve(self) -> None:
        """Reserve the places of all ranks, or else of as many as there is room for, at least `min_workers`."""
        if self._room is not None:
            return
        config = self.config
        wanted = Room(nodes=config.nodes, devices=config.devices)
        is_whole = config.min_workers is None
        seconds = config.start_timeout_seconds if is_whole else config.wait_for_all_seconds
        if self._has_reserved(wanted, seconds=seconds):
            return
        left = None
        if config.min_workers is not None:
            left = self._room_left(wanted, at_least=config.min_workers)
            if left and left.workers >= config.min_workers and self._has_reserved(left, seconds=_TAKE_SECONDS):
                self.config = config.model_copy(update={"nodes": left.nodes, "devices": left.devices})
                return
        key = "start_timeout_seconds" if is_whole else "wait_for_all_seconds"
        each = " and ".join(f"{amount * config.devices:g} {name}" for name, amount in self._a_worker.items())
        fewer = f" There is room for {left.workers if left else 0} of at least {config.min_workers} worker(s)."
        raise ClusterUnavailable(
            f"the Ray cluster has no {config.nodes} machine(s) with {each} each that are free (cluster.{key} is "
            f"{seconds:g}). It has {_resources()}.{'' if is_whole else fewer} Lower cluster.nodes or cluster.devices, "
            f"or wait until others have ended"
        )

    def _room_left(self, wanted: Room, *, at_least: int) -> Room | None:
        """The most room that there is. What was tried to reserve is free again only after a while."""
        deadline = time.monotonic() + _FREE_SECONDS
        while True:
            left = most_room(
                room_on_machines(self._a_worker),
                wanted,
                multiple_of=self.config.sequence_parallel_size,
                multiple_of_devices=self.config.tensor_parallel_size,
            )
            if (left and left.workers >= at_least) or time.monotonic() > deadline:
                return left
            time.sleep(_LOOK_SECONDS)

    def _has_reserved(self, room: Room, *, seconds: float) -> bool:
        """Reserve places, all at once or not at all."""
        a_machine = {name: amount * room.devices for name, amount in self._a_worker.items()}
        strategy = "STRICT_SPREAD" if room.nodes > 1 else "STRICT_PACK"
        self._room = placement_group([a_machine] * room.nodes, strategy=strategy)
        if self._room.wait(seconds):
            return True
        remove_placement_group(self._room)
        self._room = None
        return False

    def _environment(self) -> dict[str, Any]:
        """The runtime environment of an actor, the same on all machines, whoever has started Ray there. What the
        config says about a variable wins. In a cluster that was started here, actors inherit the variables, and start
        sooner without an environment of their own."""
        asked = dict(self.config.runtime_env)
        if self.local is not None:
            return asked
        allocator = {name: os.environ.get(name, value) for name, value in ALLOCATOR.items()}
        switches = {name: os.environ[name] for name in (CPU_ENGINE, CPU_MODEL) if name in os.environ}
        variables = {**TELEMETRY_OFF, **allocator, **switches, "PYTHONPATH": with_these_sources()}
        if not self.on_gpu:
            variables["CUDA_VISIBLE_DEVICES"] = ""
        given = asked.pop("env_vars", None) or {}
        assert isinstance(given, dict), "a mapping, as Ray wants it"
        return {**asked, "env_vars": {**variables, **given}}


def _resources() -> str:
    """The CPUs and GPUs of the cluster, for a message."""
    total, free = ray.cluster_resources(), ray.available_resources()
    words = [f"{free.get(name, 0.0):g} of {total[name]:g} {name} free" for name in ("CPU", "GPU") if name in total]
    nodes = sum(node["Alive"] for node in ray.nodes())
    return f"{nodes} machine(s), {', '.join(words) or 'without CPUs'}"


@contextmanager
def _without_rays_handlers() -> Iterator[None]:
    """Keep Ray from replacing the handler of SIGTERM, by which a run saves its state: with Ray's in Python, a signal in
    the middle of `ray.init` would end the process, and with the one in C++, any later one often aborts it."""
    ray_constants.RAY_DISABLE_FAILURE_SIGNAL_HANDLER = True  # Ray reads its variable when it is imported
    setter = ray_utils.set_sigterm_handler
    ray_utils.set_sigterm_handler = lambda handler: None
    try:
        yield
    finally:
        ray_utils.set_sigterm_handler = setter

"""Checks the machines of a cluster before they get work: that they have the same software, the run's folder, memory and
disk, and how fast they exchange data."""

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import GetTimeoutError, RayError

from rl_core.config.cluster import ClusterConfig
from rl_core.distributed.place import RankPlace
from rl_core.problem import Problem
from rl_core.workers.node_probe import NodeFacts, written_file
from rl_core.workers.ray_cluster import RayCluster
from rl_core.workers.versions import version_problems, versions

SLOW_GBIT: Final = 10.0
"""Gbit/s below which a link is warned of. With `sharding: full` every pass of the trainer moves the weights over it."""

_LEAST_DISK_GIB: Final = 5.0
"""What logs, compiled kernels and messages on a machine's own disk may take."""

_SHARED_SECONDS: Final = 10.0
"""How long a file may take to be seen by another machine (NFS remembers for some seconds that there was none)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedNodes:
    """What was found. The link, in Gbit/s, is None for one machine, and for machines that do not reach each other."""

    nodes: Sequence[NodeFacts]
    link_gbit: float | None
    problems: Sequence[Problem]


def check_nodes(
    config: ClusterConfig, folder: Path, *, machine_gib: float | None = None, gpu_gib: float | None = None
) -> CheckedNodes:
    """Reserve the machines of a run in a cluster, ask each what it has, and leave the cluster. `folder` is the run's;
    of a machine its workers take `machine_gib`, and each of them `gpu_gib` of a GPU. Raises ClusterUnavailable."""
    cluster = RayCluster(config)
    try:
        probes = cluster.probes()
        mark = folder / f".seen-by-all-{secrets.token_hex(4)}"
        try:
            return _checked(probes, config, mark, machine_gib, gpu_gib)
        finally:
            for file in (mark, *(written_file(mark, machine) for machine in range(config.nodes))):
                file.unlink(missing_ok=True)
            for probe in probes:
                ray.kill(probe)
    finally:
        cluster.close()


def _checked(
    probes: Sequence[Any], config: ClusterConfig, mark: Path, machine_gib: float | None, gpu_gib: float | None
) -> CheckedNodes:
    token = secrets.token_hex(8)
    mark.write_text(token)
    try:
        asked = [probe.facts.remote(mark, machine) for machine, probe in enumerate(probes)]
        nodes: list[NodeFacts] = ray.get(asked, timeout=config.start_timeout_seconds)
    except RayError as error:
        return CheckedNodes(nodes=[], link_gbit=None, problems=[_silent(error, config)])
    unseen = _unseen([written_file(mark, machine) for machine in range(len(nodes))])
    problems = [
        *version_problems({node.host: node.versions for node in nodes}, here=versions()),
        *folder_problems(nodes, mark.parent, token=token, unseen=unseen),
        *driver_problems(nodes),
        *room_problems(nodes, machine_gib),
        *gpu_room_problems(nodes, gpu_gib, gpus=config.devices),
    ]
    if len(nodes) == 1 or any(problem.fatal for problem in problems):
        return CheckedNodes(nodes=nodes, link_gbit=None, problems=problems)
    try:
        link = _link(probes, seconds=config.start_timeout_seconds)
    except RayError as error:
        return CheckedNodes(nodes=nodes, link_gbit=None, problems=[*problems, _cut(error, nodes)])
    return CheckedNodes(nodes=nodes, link_gbit=link, problems=[*problems, *link_problems(link, config, nodes)])


def folder_problems(
    nodes: Sequence[NodeFacts], folder: Path, *, token: str, unseen: Sequence[int] = ()
) -> Iterator[Problem]:
    """Machines that do not share the run's folder: they must see what the run's process has written (`token`), be able
    to write, and what they write must be seen by it (`unseen` are the numbers of those whose file is not)."""
    for machine, node in enumerate(nodes):
        if node.seen != token:
            what = f"it does not see the run's folder {folder.absolute()}, or has another one of that name"
        elif node.why_unwritable is not None:
            what = f"it cannot write into the run's folder {folder.absolute()}: {node.why_unwritable}"
        elif machine in unseen:
            what = f"what it writes into the run's folder {folder.absolute()} is not seen by the run's process"
        else:
            continue
        yield Problem(
            where=f"machine {node.host}",
            what=what,
            fix="mount one file system (NFS, Lustre) on all machines under the same path, writable for this user, and "
            "name a folder there with --runs-dir",
        )


def driver_problems(nodes: Sequence[NodeFacts]) -> Iterator[Problem]:
    """Machines whose torch cannot compute on their GPUs."""
    for node in nodes:
        if node.unusable_gpu is not None:
            yield replace(node.unusable_gpu, where=f"GPU of machine {node.host}")


def room_problems(nodes: Sequence[NodeFacts], needed_gib: float | None) -> Iterator[Problem]:
    """Machines that have little memory or disk now; others may end and give it back, so these are warnings."""
    for node in nodes:
        if needed_gib is not None and node.free_memory_gib < needed_gib:
            yield Problem(
                where=f"machine {node.host}",
                what=f"{node.free_memory_gib:.1f} GiB of its memory are free, and its workers need about "
                f"{needed_gib:.1f} GiB",
                fix="end what else runs there, or lower cluster.devices",
                fatal=False,
            )
        if node.free_disk_gib < _LEAST_DISK_GIB:
            yield Problem(
                where=f"machine {node.host}",
                what=f"{node.free_disk_gib:.1f} GiB are free for temporary files, where Ray and vLLM write",
                fix="free some space there, or start Ray with --temp-dir on another disk",
                fatal=False,
            )


def gpu_room_problems(nodes: Sequence[NodeFacts], needed_gib: float | None, *, gpus: int) -> Iterator[Problem]:
    """Machines on which fewer than `gpus` GPUs have the memory free that a worker needs."""
    if needed_gib is None:
        return
    for node in nodes:
        enough = [free for free in node.free_gpus_gib if free >= needed_gib]
        if not node.free_gpus_gib or len(enough) >= gpus:
            continue
        yield Problem(
            where=f"machine {node.host}",
            what=f"{len(enough)} of its {len(node.free_gpus_gib)} GPUs have the {needed_gib:.1f} GiB free that each of "
            f"{gpus} workers needs; the fullest one has {min(node.free_gpus_gib):.1f} GiB",
            fix="end what else runs there (nvidia-smi names it), or lower cluster.devices",
            fatal=False,
        )


def link_problems(gbit: float, config: ClusterConfig, nodes: Sequence[NodeFacts]) -> Iterator[Problem]:
    """A link that makes an update slow."""
    if gbit >= SLOW_GBIT:
        return
    spread = "set cluster.sharding to hybrid, with which only gradients cross it; or " * (config.sharding == "full")
    yield Problem(
        where="network between the machines",
        what=f"{gbit:.1f} Gbit/s between {', '.join(node.host for node in nodes)}, less than {SLOW_GBIT:g}: the "
        "workers will wait for it",
        fix=f"{spread}name the faster interface in cluster.runtime_env, such as {{env_vars: {{NCCL_SOCKET_IFNAME: ib0, "
        "GLOO_SOCKET_IFNAME: ib0}}",
        fatal=False,
    )


def _unseen(files: Sequence[Path]) -> list[int]:
    """The numbers of those files that do not come into sight."""
    deadline = time.monotonic() + _SHARED_SECONDS
    while unseen := [number for number, file in enumerate(files) if not file.exists()]:
        if time.monotonic() > deadline:
            return unseen
        time.sleep(0.2)
    return []


def _link(probes: Sequence[Any], *, seconds: float) -> float:
    """Gbit/s between the machines, of the slowest."""
    meeting: str = ray.get(probes[0].meeting.remote(), timeout=seconds)
    places = [RankPlace(rank=rank, size=len(probes), ranks_per_node=1, meeting=meeting) for rank in range(len(probes))]
    asked = [probe.link.remote(place) for probe, place in zip(probes, places, strict=True)]
    measured: list[float] = ray.get(asked, timeout=seconds)
    return min(measured)


def _silent(error: RayError, config: ClusterConfig) -> Problem:
    if isinstance(error, GetTimeoutError):
        what = f"a machine did not answer within cluster.start_timeout_seconds, {config.start_timeout_seconds:g} s"
    else:
        what = f"a machine cannot start this project: {_last_line(error)}"
    return Problem(
        where="cluster",
        what=what,
        fix="have the project and its environment on every machine under the same path, and start Ray there from it "
        "(docs/cluster.md)",
    )


def _cut(error: RayError, nodes: Sequence[NodeFacts]) -> Problem:
    return Problem(
        where="network between the machines",
        what=f"{', '.join(node.host for node in nodes)} do not reach each other: {_last_line(error)}",
        fix="open all ports between them, and name the interface that they share in cluster.runtime_env, such as "
        "{env_vars: {GLOO_SOCKET_IFNAME: eth0, NCCL_SOCKET_IFNAME: eth0}}",
    )


def _last_line(error: RayError) -> str:
    lines = [line.strip() for line in f"{error}".splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__

"""Changes of the section `cluster` with which each of its workers takes less memory."""

from collections.abc import Iterator
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.planning.changes import Change
from rl_core.planning.model_rules import division_problems
from rl_core.planning.model_sizes import ModelSizes

MOST_GPUS: Final = 64
"""Most GPUs that are proposed."""

_GPUS_A_MACHINE: Final = 8
"""GPUs of a usual machine: beyond these another machine is proposed."""


def is_possible(config: RunConfig, sizes: ModelSizes) -> bool:
    """Whether `plan` refuses nothing of the workers of a model with these sizes: they can be put together, and share
    its layers equally."""
    problems = (*config.cluster.problems(), *division_problems(config, sizes))
    return not any(problem.fatal for problem in problems)


def cluster_changes(config: RunConfig) -> Iterator[Change]:
    """Changes with which the workers that a run has share more of what each of them holds now, those that cost less
    time first. Not all of them are possible."""
    cluster = config.cluster
    if cluster.is_split:
        yield Change.of("cluster.placement", "colocated")
    if cluster.nodes > 1 and cluster.sharding == "none":
        yield Change.of("cluster.sharding", "hybrid")
    if cluster.ranks > 1 and cluster.sharding != "full":
        yield Change.of("cluster.sharding", "full")
    for key, size in {
        "cluster.tensor_parallel_size": cluster.tensor_parallel_size,
        "cluster.sequence_parallel_size": cluster.sequence_parallel_size,
    }.items():
        yield from (Change.of(key, more) for more in range(size + 1, cluster.devices + 1))


def wider(config: RunConfig) -> Iterator[list[Change]]:
    """Changes that spread a run over more GPUs, the fewest first: over a machine and then over more of them, twice as
    many each time, with generators on one worker, on two and so on."""
    cluster = config.cluster
    devices, nodes = cluster.devices, cluster.nodes
    while 2 * nodes * devices <= MOST_GPUS:
        devices, nodes = (2 * devices, nodes) if 2 * devices <= _GPUS_A_MACHINE else (devices, 2 * nodes)
        wanted = {"nodes": nodes, "devices": devices, "sharding": "full"}
        if nodes > 1 and cluster.address == "local":
            wanted["address"] = "auto"
        spread = [Change.of(f"cluster.{key}", value) for key, value in wanted.items() if getattr(cluster, key) != value]
        yield spread
        for size in range(cluster.tensor_parallel_size + 1, devices + 1):
            yield [*spread, Change.of("cluster.tensor_parallel_size", size)]

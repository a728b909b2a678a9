"""Finds the problems of the machines of a cluster that a run joins, before anything is made."""

from rl_core.config.run import RunConfig
from rl_core.planning.gpu import find_gpu
from rl_core.planning.memory import memory_forecast
from rl_core.planning.model_sizes import model_sizes
from rl_core.planning.settings import settle
from rl_core.problem import Problem
from rl_core.records.metrics_log import RunLogs
from rl_core.run_directory import RunDirectory
from rl_core.workers.needed_memory import NeededMemory

EVENT = "cluster-machines"
"""The kind of the event that tells which machines were checked, what each has, and how fast they exchange data."""


def node_problems(config: RunConfig, run: RunDirectory) -> list[Problem]:
    """Problems of the machines that a joined cluster has for this run. A cluster on this machine alone has none that
    are not found elsewhere. What was found is recorded as an event.

    Args:
        config: The config, with paths that can be read from here.
        run: The run; its folder exists.

    Raises:
        ClusterUnavailable: the cluster cannot be reached, or has no room.
    """
    if config.cluster.address == "local":
        return []
    # Imported here: Ray takes seconds to import.
    from rl_core.workers.node_check import check_nodes

    checked = check_nodes(config.cluster, run.root, needed=_needed(config))
    machines = [
        {
            "host": node.host,
            "versions": dict(node.versions),
            "free_memory_gib": round(node.free_memory_gib, 1),
            "free_disk_gib": round(node.free_disk_gib, 1),
            "free_gpus_gib": [round(free, 1) for free in node.free_gpus_gib],
        }
        for node in checked.nodes
    ]
    RunLogs(run).log_event(EVENT, machines=machines, link_gbit=checked.link_gbit and round(checked.link_gbit, 2))
    return [*checked.problems]


def _needed(config: RunConfig) -> NeededMemory:
    """The memory that the run takes on machines like this one, as far as the model's size is known."""
    sizes, gpu = model_sizes(config.model.source), find_gpu(config.cluster.device)
    if sizes is None:
        return NeededMemory()
    settled = settle(config, sizes, gpu).config
    if gpu is None:
        return NeededMemory(machine_gib=memory_forecast(settled, sizes).machine_gib)
    forecast = memory_forecast(settled, sizes, gpu_gib=gpu.memory_gib or 0.0)
    return NeededMemory(machine_gib=forecast.machine_gib, gpu_gib=forecast.peak_gib)

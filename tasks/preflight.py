"""Preflight: every problem of a run is reported at once, before anything expensive starts.

See docs/architecture.md, "Bad input is named".
"""

import logging

from prefect import task
from prefect.cache_policies import NO_CACHE

from rl_core.config.run import RunConfig
from rl_core.planning.gpu import find_gpu
from rl_core.planning.memory import memory_forecast
from rl_core.planning.model_sizes import model_sizes
from rl_core.planning.settings import resolve_auto
from rl_core.problem import Problem, raise_if_fatal
from rl_core.records.metrics_log import DOUBT_EVENT, RunLogs
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import is_recorded
from tasks.context import current_context, named
from tasks.planning.trials import find_problems

EVENT = "cluster-machines"
"""The kind of the event that says which machines were checked, what each has, and how fast they exchange data."""

logger = logging.getLogger(__name__)


@task(name="preflight", task_run_name=named("preflight"), cache_policy=NO_CACHE)
def preflight(run: str) -> list[str]:
    """Check an open run before its stages are made. Returns warnings about what works, but perhaps not as intended.
    Raises PlanError where the run cannot work; the message has every problem. The machines of a cluster are looked at
    only if nothing else is wrong. Raises ClusterUnavailable where the cluster that the run joins cannot be reached, or
    has no room."""
    context = current_context(run)
    # The report depends on every other stage: once it is finished, nothing expensive is left to do.
    if is_recorded(context.run, "report", context.stages.digests["report"]):
        return []
    with context.stop.breaking_off(), context.progress.wait("look for problems, and try the reward"):
        is_prepared = is_recorded(context.run, "prepare", context.stages.digests["prepare"])
        problems = find_problems(context.located, context.run, is_prepared=is_prepared)
        problems += context.stages.files.problems()
        raise_if_fatal(problems)
        problems += node_problems(context.located, context.run)
    raise_if_fatal(problems)
    for problem in problems:
        if problem.on_pages:
            RunLogs(context.run).log_event(DOUBT_EVENT, why=f"{problem.what}")
    warnings = [str(problem) for problem in problems]
    for warning in warnings:
        logger.warning("%s", warning)
    return warnings


def node_problems(config: RunConfig, run: RunDirectory) -> list[Problem]:
    """Problems of the machines that a joined cluster has for this run, whose folder exists. A cluster on this machine
    alone has none that are not found elsewhere. What was found is recorded as an event. Raises ClusterUnavailable where
    the cluster cannot be reached, or has no room."""
    if config.cluster.address == "local":
        return []
    # Imported here: Ray takes seconds to import.
    from rl_core.workers.node_check import check_nodes

    machine_gib, gpu_gib = _needed_memory(config)
    checked = check_nodes(config.cluster, run.root, machine_gib=machine_gib, gpu_gib=gpu_gib)
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


def _needed_memory(config: RunConfig) -> tuple[float | None, float | None]:
    """GiB that the run takes of a machine and of a GPU by the forecast; None where that is not known."""
    sizes, gpu = model_sizes(config.model.source), find_gpu(config.cluster.device)
    if sizes is None:
        return None, None
    resolved = resolve_auto(config, sizes, gpu).config
    if gpu is None:
        return memory_forecast(resolved, sizes).machine_gib, None
    forecast = memory_forecast(resolved, sizes, gpu_gib=gpu.memory_gib or 0.0)
    return forecast.machine_gib, forecast.peak_gib

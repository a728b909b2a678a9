"""Preflight: every problem of a run is reported at once, before anything expensive starts.

See docs/architecture.md, "Bad input is named".
"""

import logging

from prefect import task
from prefect.cache_policies import NO_CACHE

from rl_core.problem import raise_if_fatal
from tasks.cache.manifests import is_recorded
from tasks.context import current_context, named
from tasks.planning.node_problems import node_problems
from tasks.planning.problems import find_problems

logger = logging.getLogger(__name__)


@task(name="preflight", task_run_name=named("preflight"), cache_policy=NO_CACHE)
def preflight(run: str) -> list[str]:
    """Check an open run before its stages are made.

    Returns:
        Warnings about what works, but perhaps not as intended.

    Raises:
        PlanError: the run cannot work; the message has every problem. The machines of a cluster are looked at only if
            nothing else is wrong.
        ClusterUnavailable: the cluster that the run joins cannot be reached, or has no room.
    """
    context = current_context(run)
    # The report depends on every other stage: once it is finished, nothing expensive is left to do.
    if is_recorded(context.run, "report", context.digests["report"]):
        return []
    with context.stop.breaking_off(), context.progress.wait("look for problems, and try the reward"):
        is_prepared = is_recorded(context.run, "prepare", context.digests["prepare"])
        problems = find_problems(context.located, context.run, is_prepared=is_prepared)
        raise_if_fatal(problems)
        problems += node_problems(context.located, context.run)
    raise_if_fatal(problems)
    warnings = [str(problem) for problem in problems]
    for warning in warnings:
        logger.warning("%s", warning)
    return warnings

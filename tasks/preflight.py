"""Preflight: everything that a person should change, named at once, before anything expensive starts.

See docs/architecture.md, "Bad input is named".
"""

import logging

from prefect import task
from prefect.cache_policies import NO_CACHE

from rl_core.planning.problem import raise_if_fatal
from tasks.cache.manifests import read_manifest
from tasks.context import RunContext, current_context, named
from tasks.planning.problems import find_problems

logger = logging.getLogger(__name__)


@task(name="preflight", task_run_name=named("preflight"), cache_policy=NO_CACHE)
def preflight(run: str) -> list[str]:
    """Check an open run before its stages are made.

    Returns:
        Warnings: what works but perhaps not as meant.

    Raises:
        PlanError: the run cannot work; the message names every problem.
    """
    context = current_context(run)
    # The report depends on every other stage: where it stands, nothing expensive is left.
    if _stands(context, "report"):
        return []
    with context.stop.breaking_off(), context.progress.wait("look for problems, and try the reward"):
        problems = find_problems(context.located, context.run, is_prepared=_stands(context, "prepare"))
    raise_if_fatal(problems)
    warnings = [str(problem) for problem in problems]
    for warning in warnings:
        logger.warning("%s", warning)
    return warnings


def _stands(context: RunContext, stage: str) -> bool:
    manifest = read_manifest(context.run, stage)
    return manifest is not None and manifest.digest == context.digests[stage]

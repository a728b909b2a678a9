"""With how many workers a stage is made, where fewer than configured are allowed (`cluster.min_workers`)."""

import logging

from rl_core.config.cluster import ClusterConfig
from rl_core.records.metrics_log import RunLogs
from tasks.cache.software import continued, with_workers
from tasks.context import RunContext

logger = logging.getLogger(__name__)


def start_workers(context: RunContext) -> None:
    """Start the workers of an open run, if they are not running, where it may turn out with how many. Another number
    than before is an event, and counts as other software from the last checkpoint on."""
    asked = context.located.cluster
    if asked.min_workers is None:
        return
    there = context.session.workers.cluster
    now = with_workers(context.software, there)
    if now == context.software:
        return
    context.software = now
    RunLogs(context.run).log_event(
        "workers-changed", workers=there.ranks, of=asked.ranks, message=_message(there, asked)
    )
    logger.warning("%s", _message(there, asked))


def note_new_workers(context: RunContext) -> None:
    """As `start_workers`, for a training that may have begun: its software is noted from its last checkpoint on. What
    other workers had generated after it is generated again, since these come to other weights."""
    before = context.wanted("training").software
    start_workers(context)
    now = context.wanted("training").software
    if now == before:
        return
    last = context.session.store.latest()
    step = last.step if last else 0
    context.trained_by = continued(context.trained_by, now, step=step) if step else now
    RunLogs(context.run).cut_back(step or -1)


def _message(there: ClusterConfig, asked: ClusterConfig) -> str:
    if there.ranks == asked.ranks:
        return f"all {asked.ranks} workers are there again, and the run goes on with them"
    return (
        f"the run goes on with {there.ranks} of {asked.ranks} workers, {there.devices} on each of {there.nodes} "
        f"machine(s): there is no room for more (cluster.min_workers is {asked.min_workers})"
    )

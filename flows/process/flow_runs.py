"""A run's flow runs in Prefect: one whose process was killed, or that ended while Prefect's server was away, says
Running for ever, until the run's next start or `sightline doctor` marks it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Completed, Crashed, Failed

from flows.process.error_messages import cause_of
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLockLost, ensure_held
from rl_core.stop import Interrupted
from tasks.attempts import note_that_prefect_knows, noted, prefect_may_not_know, remember
from tasks.pages.artifacts import UNREACHABLE

logger = logging.getLogger(__name__)

_NEEDS_A_PROCESS = (StateType.RUNNING, StateType.CANCELLING)
"""Of a flow run that is scheduled, pending or paused a process may still be to come."""


def planned_start(flow_run: FlowRun) -> datetime:
    """When it was to start, which a retry does not change: the tag of a fresh run. When it was made would not do, for a
    scheduler makes the flow runs of the next weeks in one moment."""
    start = flow_run.expected_start_time or flow_run.created
    assert start is not None, "Prefect made it"
    return start


def flow_run_name(what: str, start: datetime, which: str = "") -> str:
    """A name that tells flow runs apart where its end is cut off: what it works on, its planned start (UTC, to the
    minute), and which of those that are called so."""
    return f"{what} {start.astimezone(UTC):%Y-%m-%d %H:%M}Z {which}".strip()


@contextmanager
def remembered(run: RunDirectory, flow_run_id: str) -> Iterator[None]:
    """Note which flow run writes this run for the length of the block, and how it ended: Prefect's server may not be
    there to be told."""
    remember(run, flow_run_id)
    end, cause = "failed", None
    try:
        yield
        end = "completed"
    except Interrupted:
        end = "interrupted"
        raise
    except Exception as error:
        cause = cause_of(error)
        raise
    finally:
        with suppress(RunLockLost):  # then the note is another process's
            ensure_held(run.lock)
            remember(run, flow_run_id, end=end, cause=cause)


def told_its_end(run: RunDirectory, flow_run_id: str) -> bool:
    """Whether this flow run, in its newest attempt, wrote this run and came to say how it ended."""
    try:
        last = noted(run)
    except ValueError:
        return False
    return bool(last.get("flow_run") == flow_run_id and last["end"])


def mark_abandoned(run: RunDirectory, *, current: str | None = None) -> str | None:
    """Give the flow run that wrote this run before its final state, if it still says that it is running: how it ended,
    or Crashed when its process was killed.

    Only for the holder of the run's lock: the lock proves that no process works on it. Prefect refuses to retry a run
    that says Running, so without this nobody could.

    Args:
        run: The run.
        current: The flow run that holds the lock, which is not marked.

    Returns:
        What was marked, for people; None when there was nothing to mark.
    """
    try:
        earlier = noted(run)
    except ValueError as damaged:
        logger.warning("%s; it is written anew", damaged)
        return None
    if not prefect_may_not_know(run) or earlier["flow_run"] == current:
        return None
    return _mark(run, UUID(earlier["flow_run"]), _final_state(earlier["end"]))


def _final_state(end: str | None) -> State[Any]:
    away = "it ended while Prefect's server was away"
    match end:
        case "completed":
            return Completed(message=away)
        case "interrupted":
            return Cancelled(name="Interrupted", message=away)
        case "failed":
            return Failed(message=away)
        case _:
            return Crashed(message="its process is gone; found by the run's next start or by `sightline doctor`")


def _mark(run: RunDirectory, flow_run_id: UUID, final: State[Any]) -> str | None:
    marked = None
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(flow_run_id).state
            if state is not None and state.type in _NEEDS_A_PROCESS:
                client.set_flow_run_state(flow_run_id, final, force=True)
                marked = f"flow run {flow_run_id} was {state.name} without a process: marked {final.name}"
                logger.warning("%s", marked)
            if marked is not None or (state is not None and state.is_final()):
                note_that_prefect_knows(run, str(flow_run_id))
    except ObjectNotFound:
        logger.info("flow run %s is unknown to this Prefect database", flow_run_id)  # another one may know it
    except UNREACHABLE as error:
        logger.warning("the earlier flow run %s could not be looked up (%s)", flow_run_id, error)
    return marked

"""The flow runs of a run in Prefect. One whose process was killed is shown as Running until the next start of the run
or `sightline doctor` marks it."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Completed, Crashed, Failed

from flows.printing import cause_of
from rl_core.config.key_kinds import OPERATION, is_of
from rl_core.config.loading import load_config
from rl_core.redaction import redact
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLockLost, ensure_held
from rl_core.stop import Interrupted
from tasks.attempts import noted, remember
from tasks.pages.artifacts import UNREACHABLE

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_NAMES: Final = 2.0

_NEEDS_A_PROCESS = (StateType.RUNNING, StateType.CANCELLING)
"""States of a flow run that has a process; a scheduled, pending or paused one may get its process later."""


def planned_start(flow_run: FlowRun) -> datetime:
    """When a flow run was planned to start, which a retry does not change. It becomes part of a fresh run's name. The
    time of creation would not do, because a scheduler creates the flow runs of the next weeks in one moment."""
    start = flow_run.expected_start_time or flow_run.created
    assert start is not None, "Prefect has created it"
    return start


def flow_run_name(what: str, start: datetime, *which: str, overrides: Sequence[str] = ()) -> str:
    """A name that distinguishes flow runs even where its end is cut off: what it works on, its planned start (UTC, to
    the minute), the overrides but for those that only say how a run is carried out, and further details."""
    named = [text for text in overrides if not is_of(OPERATION, text.partition("=")[0])]
    return redact(" ".join([what, f"{start.astimezone(UTC):%Y-%m-%d %H:%M}Z", *named, *filter(None, which)]))


def waiting_name(parameters: Mapping[str, Any], start: datetime) -> str | None:
    """The name of a flow run that waits: nothing is read for it but its config. None where its parameters ask for no
    run."""
    config, overrides = parameters.get("config"), parameters.get("overrides") or ()
    what = parameters.get("resume") or ", ".join(parameters.get("baselines") or ()) or config
    if not what:
        return None
    if what == config:
        with suppress(ValueError):  # the flow itself says what is wrong with it
            what = load_config(Path(config), overrides).experiment
    seeds = parameters.get("seeds")
    return flow_run_name(what, start, f"seeds {seeds}" if seeds else "", overrides=overrides)


class WaitingRuns:
    """The flow runs that wait at a server. Prefect gives them two random words for a name until they start."""

    def __init__(self, client: SyncPrefectClient) -> None:
        self._client = client
        self._seen: set[UUID] = set()
        self._due = 0.0

    def name(self) -> None:
        """Name those that are new by what they are to do; does nothing where it did so just now."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _SECONDS_BETWEEN_NAMES
        with suppress(ObjectNotFound, *UNREACHABLE):  # it was deleted; or the server is started again
            waiting = FlowRunFilterStateType(any_=[StateType.SCHEDULED])
            chosen = FlowRunFilter(state=FlowRunFilterState(type=waiting))
            for flow_run in self._client.read_flow_runs(
                flow_run_filter=chosen, sort=FlowRunSort.EXPECTED_START_TIME_ASC
            ):
                if flow_run.id not in self._seen and not flow_run.run_count:
                    name = waiting_name(flow_run.parameters, planned_start(flow_run))
                    if name is not None:
                        self._client.update_flow_run(flow_run.id, name=name)
                self._seen.add(flow_run.id)


@contextmanager
def remembered(run: RunDirectory, flow_run_id: str) -> Iterator[None]:
    """Note in the run's folder which flow run writes the run during the block, and how it ended: Prefect's server may
    be away at that moment."""
    remember(run, flow_run_id)
    end, cause = "failed", None
    try:
        yield
        end = "completed"
    except Interrupted:
        end = "cancelled" if is_being_cancelled(UUID(flow_run_id)) else "interrupted"
        raise
    except Exception as error:
        cause = cause_of(error)
        raise
    finally:
        with suppress(RunLockLost):  # another process writes the note then
            ensure_held(run.lock)
            remember(run, flow_run_id, end=end, cause=cause)


def is_being_cancelled(flow_run_id: UUID) -> bool:
    """Whether Prefect was asked to cancel a flow run, whose process then gets a signal. False where its server is
    away."""
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(flow_run_id).state
    except (ObjectNotFound, *UNREACHABLE):
        return False
    return state is not None and state.is_cancelling()


def has_noted_end(run: RunDirectory, flow_run_id: str) -> bool:
    """Whether this flow run was the last to write this run and noted how it ended."""
    try:
        last = noted(run)
    except ValueError:
        return False
    return bool(last.get("flow_run") == flow_run_id and last["end"])


def mark_abandoned(run: RunDirectory, *, current: str | None = None) -> str | None:
    """Give the flow run that last wrote this run its final state, if Prefect still shows it as running: how it ended,
    or Crashed if its process was killed.

    Only for the holder of the run's lock, which proves that no other process works on the run. Prefect refuses to retry
    a flow run that it shows as Running. Returns a sentence about what was marked; None where there was nothing to mark.
    """
    try:
        earlier = noted(run)
    except ValueError as damaged:
        logger.warning("%s; it is written again", damaged)
        return None
    if not earlier or earlier["flow_run"] == current:
        return None
    return mark_ended(UUID(earlier["flow_run"]), earlier["end"])


def _final_state(end: str | None) -> State[Any]:
    away = "it ended while Prefect's server was away"
    match end:
        case "completed":
            return Completed(message=away)
        case "interrupted" | "cancelled":
            return Cancelled(name=end.capitalize(), message=away)
        case "failed":
            return Failed(message=away)
        case _:
            return Crashed(message="its process is gone; found by the run's next start or by `sightline doctor`")


def mark_ended(flow_run_id: UUID, end: str | None) -> str | None:
    """Give a flow run without a process its final state, if Prefect still shows it as running: how it ended, or Crashed
    if that is not known. Returns a sentence about what was marked; None where there was nothing to mark."""
    final = _final_state(end)
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(flow_run_id).state
            if state is not None and state.type in _NEEDS_A_PROCESS:
                client.set_flow_run_state(flow_run_id, final, force=True)
                marked = f"flow run {flow_run_id} was {state.name} without a process, and is now marked {final.name}"
                logger.warning("%s", marked)
                return marked
    except ObjectNotFound:
        logger.info("flow run %s is unknown to this Prefect database", flow_run_id)  # another one may know it
    except UNREACHABLE as error:
        logger.warning("the earlier flow run %s could not be looked up (%s)", flow_run_id, error)
    return None

"""Ends flow runs that failed or were interrupted: their final state, and a page about the cause and how to continue."""

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import Any, Final
from uuid import UUID

from prefect import Flow, State
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Failed

from flows.printing import cause_of, last_lines
from flows.process.flow_runs import has_noted_end, is_being_cancelled, planned_start
from flows.process.watcher import Watcher
from flows.request import RunRequest, resume_command
from rl_core.redaction import redact
from rl_core.run_directory import RunDirectory
from rl_core.stop import Interrupted
from tasks.pages.artifacts import PAGES, UNREACHABLE

logger = logging.getLogger(__name__)

_LOG_LINES = 25
_MESSAGE_LENGTH = 600

_CANCELLED: Final = "cancelled in Prefect; what was finished is kept"
_WORKER_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.2


def ended_early(watcher: Watcher, flow_run_id: UUID) -> State[Any]:
    """The final state of a flow run that an exception ended; writes its page. After a request to stop it is Cancelled,
    and named Interrupted where nobody has cancelled it in Prefect."""
    error, command = watcher.error, watcher.command or _command_of(watcher.run)
    go_on = f"; to continue: {command}" if command else ""
    is_cancelled = isinstance(error, Interrupted) and is_being_cancelled(flow_run_id)
    cause = _CANCELLED if is_cancelled else redact(cause_of(error))
    show_ending(flow_run_id, cause, command=command, run=watcher.run)
    if isinstance(error, Interrupted):
        return Cancelled(name="Cancelled" if is_cancelled else "Interrupted", message=f"{cause}{go_on}")
    short = cause if len(cause) <= _MESSAGE_LENGTH else f"{cause[:_MESSAGE_LENGTH]}..."
    return Failed(message=f"{short}{go_on}", data=error)


def explain(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """A hook that writes the page for flow runs that could not do it themselves, because their process was killed or a
    cancellation did not wait. Prefect calls it in the worker, or in the process itself."""
    try:
        run = RunRequest.of_parameters(flow_run.parameters).resolved(planned_start(flow_run)).run
    except ValueError as error:
        logger.warning("flow run %s: %s", flow_run.id, error)
        run = None
    command = _command_of(run)
    keep_resume_command(flow_run.id, state, command)
    if run is not None and has_noted_end(run, str(flow_run.id)):
        return
    show_ending(flow_run.id, state_message(state), command=command, run=run)


def keep_resume_command(flow_run_id: UUID, state: State[Any], command: str | None) -> None:
    """Keep how to continue in the state of a flow run that is being cancelled: after its hooks a worker forces a state
    with a message of its own ("Flow run was cancelled successfully."), also over one in which the flow has given the
    command."""
    if command is None or not state.is_cancelling():
        return
    final: State[Any] = Cancelled(message=f"{_CANCELLED}; to continue: {command}")
    Thread(target=copy_context().run, args=(_set_after_the_worker, flow_run_id, final), name="cancelled").start()


def _set_after_the_worker(flow_run_id: UUID, final: State[Any]) -> None:
    """Give a flow run this state once the worker has given it one, which it does within moments."""
    until = time.monotonic() + _WORKER_SECONDS
    with suppress(ObjectNotFound, *UNREACHABLE), get_client(sync_client=True) as client:
        while time.monotonic() < until:
            state = client.read_flow_run(flow_run_id).state
            if state is not None and state.is_cancelled() and state.message != final.message:
                client.set_flow_run_state(flow_run_id, final, force=True)
                return
            time.sleep(_LOOK_SECONDS)


ENDINGS: Final[Mapping[str, Any]] = {"on_crashed": [explain], "on_cancellation": [explain]}
"""Hooks of every flow that works on one run."""


def state_message(state: State[Any]) -> str:
    """What Prefect says about a flow run whose process could not report its end."""
    return state.message or state.name or "it ended early"


def show_ending(flow_run_id: UUID, cause: str, *, command: str | None, run: RunDirectory | None = None) -> None:
    """Write a page of the flow run: the cause, the commands that continue it, the last lines of the run's log."""
    page = ArtifactCreate(
        type="markdown",
        key="how-to-continue",
        description="Why it ended, and how to continue",
        data=redact(_ending_page(flow_run_id, cause, command=command, run=run)),
        flow_run_id=flow_run_id,
    )

    def create() -> None:
        with get_client(sync_client=True) as client:
            client.create_artifact(page)

    PAGES.send(create)


def _ending_page(flow_run_id: UUID, cause: str, *, command: str | None, run: RunDirectory | None) -> str:
    retry = f"prefect flow-run retry {flow_run_id}"
    commands = [
        *([command] if command else []),
        f"{retry}      # or Retry on this page, for a deployment's run",
    ]
    parts = [
        "# How to continue",
        f"**Cause:** {_fenced([cause])}" if "\n" in cause else f"**Cause:** {cause}",
        "Correct the cause, then continue. Finished stages are not made again; training continues from its last "
        "checkpoint.",
        _fenced(commands),
    ]
    if run is not None and run.log.is_file():
        with run.log.open("rb") as stream:
            parts += [f"**The last lines of `{run.log}`:**", _fenced(last_lines(stream, _LOG_LINES))]
    return "\n\n".join(parts) + "\n"


def _command_of(run: RunDirectory | None) -> str | None:
    return resume_command(run) if run else None


def _fenced(lines: Sequence[str]) -> str:
    return "\n".join(["", "```", *lines, "```"])

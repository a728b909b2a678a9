"""The flow of a set of runs."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from prefect import Flow, State, runtime
from prefect.client.schemas.objects import FlowRun
from prefect.flows import FlowStateHook
from prefect.utilities.callables import get_parameter_defaults

from flows.process.failed_flows import ended_early, last_word, show_ending
from flows.process.flow_runs import flow_run_name, planned_start
from flows.process.open_run import flow_run_id, outlive_the_worker, start
from flows.process.set_runs import carry_out_runs
from flows.process.watcher import current_watcher, watched_by
from flows.run_set import PlannedRun, RunSet
from rl_core.stop import stopped_by_signals

logger = logging.getLogger(__name__)

Set = TypeVar("Set", bound=RunSet)
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedRun:
    """A run of a set, and why it did not finish; None when it did."""

    plan: PlannedRun
    failure: str | None


def in_set(
    kind: type[Set],
    parameters: Mapping[str, Any],
    conclude: Callable[[Set, Sequence[EndedRun]], Result],
    *,
    before: Callable[[Set, PlannedRun], None] = lambda run_set, plan: None,
) -> Result | State[Any]:
    """Carry out the runs of the set that a flow was asked for; a finished run is recognised. Returns the result of
    `conclude`, or the final state of a flow run that an exception ended."""
    outlive_the_worker()
    watcher = current_watcher()
    with watcher, watched_by(watcher), stopped_by_signals(watcher.stop):
        run_set = kind.of_parameters(parameters, start())
        planned = run_set.planned()
        if problems := run_set.fatal_problems():
            raise ValueError("\n".join(problems))
        run_set.save()
        watcher.command = run_set.command
        failures = carry_out_runs(
            planned, title=run_set.title, before=lambda plan: before(run_set, plan), stop=watcher.stop
        )
        ended = [EndedRun(plan=plan, failure=failure) for plan, failure in zip(planned, failures, strict=True)]
        return conclude(run_set, ended)
    return ended_early(watcher, flow_run_id())


def name_of_set(kind: type[RunSet], what: str) -> Callable[[], str]:
    """Names flow runs: from their start and the name of their set."""

    def name() -> str:
        try:
            which = kind.of_parameters(runtime.flow_run.parameters, start()).name
        except ValueError:
            which = ""  # the flow itself says what is wrong
        return flow_run_name(what, start(), which)

    return name


def explain_end(kind: type[RunSet]) -> FlowStateHook[..., Any]:
    """A hook for flow runs whose process was killed: it writes how to continue."""

    def explain(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
        # A deployment's run has the parameters that were given.
        parameters = get_parameter_defaults(flow.fn) | flow_run.parameters
        show_ending(flow_run.id, last_word(state), command=_command(kind, parameters, flow_run))

    return explain


def _command(kind: type[RunSet], parameters: Mapping[str, Any], flow_run: FlowRun) -> str | None:
    """The command that continues a set; None when the set was refused before it was saved."""
    try:
        run_set = kind.of_parameters(parameters, planned_start(flow_run))
    except ValueError as error:
        logger.warning("the set cannot be named: %s", error)
        return None
    return run_set.command if run_set.is_saved else None

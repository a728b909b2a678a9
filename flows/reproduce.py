"""The flow that reproduces baselines, for a schedule. It writes one page, and fails when a baseline is not good."""

import logging
from datetime import datetime
from typing import Annotated, Any

from prefect import Flow, State, flow, runtime, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import FlowRun
from prefect.states import Completed, Failed
from prefect.utilities.callables import get_parameter_defaults
from pydantic import Field

from flows.parameters import Overrides
from flows.process.failed_flows import Ending, ended_early, last_word, show_ending
from flows.process.flow_runs import flow_run_name, planned_start
from flows.process.open_run import flow_run_id, outlive_the_worker, start
from flows.process.own_process import run_alone
from flows.process.watcher import current_watcher, watched_by
from flows.reproducing import DEFAULT_SET, BaselineSet, PlannedBaseline, refuse_fatal
from flows.request import ResolvedRun
from rl_core.run_directory import RUNS_DIR
from rl_core.stop import stopped_by_signals
from tasks.pages.artifacts import PAGES
from tasks.reproduction.baseline_set import Member, is_finished
from tasks.reproduction.record import Conclusion, conclude, markdown

logger = logging.getLogger(__name__)

Baselines = Annotated[list[str], Field(min_length=1)]


class Regressed(RuntimeError):
    """A baseline of the set is not good; the message names all such baselines."""


def explain_set(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """A hook for flow runs whose process was killed: it writes how to continue."""
    parameters = get_parameter_defaults(flow.fn) | flow_run.parameters  # a deployment's run has those that were given
    show_ending(flow_run.id, last_word(state), command=_command(parameters, planned_start(flow_run)))


def _command(parameters: dict[str, Any], start: datetime) -> str | None:
    """The command that continues a set; None when the set was refused before it was saved."""
    try:
        baseline_set = BaselineSet.of_parameters(parameters, start)
    except ValueError as error:
        logger.warning("the set cannot be named: %s", error)
        return None
    return baseline_set.command if baseline_set.is_saved else None


def name_of_set() -> str:
    """Name of a flow run, from its start and the name of its set."""
    try:
        return flow_run_name(
            "reproduction", start(), BaselineSet.of_parameters(runtime.flow_run.parameters, start()).name
        )
    except ValueError:
        return flow_run_name("reproduction", start())  # the flow itself says what is wrong


@flow(name="reproduce-baselines", flow_run_name=name_of_set, on_crashed=[explain_set], on_cancellation=[explain_set])
def reproduce_baselines(
    baselines: Baselines = list(DEFAULT_SET),  # noqa: B006 (Prefect's form shows it)
    overrides: Overrides = (),
    resume: str = "",
    fresh: bool = False,
    runs_dir: str = RUNS_DIR,
) -> dict[str, Any] | State[Any]:
    """Run published baselines one after the other, and compare each with its published number and its earlier good
    runs.

    Args:
        baselines: Names of configs/baselines, config files, or `all`.
        overrides: Changes to single keys of every config, each `key.path=value`.
        resume: Name of a set to continue; it wins over the other parameters.
        fresh: Make new runs that take nothing over from other runs, as a scheduled set should.
        runs_dir: Folder of the runs.

    Returns:
        The result of every baseline. A set with a baseline that is not good ends as Failed, after all baselines were
        run.
    """
    parameters = {"baselines": baselines, "overrides": overrides, "resume": resume, "fresh": fresh}
    outlive_the_worker()
    watcher, ending = current_watcher(), Ending()
    with ending, watched_by(watcher), watcher.noting_the_end(), stopped_by_signals(watcher.stop):
        baseline_set = BaselineSet.of_parameters({**parameters, "runs_dir": runs_dir}, start())
        return _ended(_carry_out(baseline_set, ending))
    return ended_early(ending, flow_run_id())


def _carry_out(baseline_set: BaselineSet, ending: Ending) -> Conclusion:
    planned = baseline_set.planned()
    refuse_fatal(planned)
    baseline_set.save()
    ending.command = baseline_set.command
    members = [_member(plan) for plan in planned]
    conclusion = conclude(baseline_set.name, members, baseline_set.folder, command=baseline_set.command)
    text = markdown(conclusion)
    PAGES.write(lambda: create_markdown_artifact(key="reproduction", markdown=text, description=conclusion.headline))
    return conclusion


def _member(plan: PlannedBaseline) -> Member:
    state = reproduce(plan.name, plan.resolved, return_state=True)
    current_watcher().stop.raise_if_requested()
    failure = state.message if state.is_failed() else None
    resolved = plan.resolved
    return Member(name=plan.name, baseline=plan.baseline, config=resolved.config, run=resolved.run, failure=failure)


@task(name="reproduce", task_run_name="reproduce {name}", cache_policy=NO_CACHE)
def reproduce(name: str, resolved: ResolvedRun) -> State[Any]:
    """Carry out the run of a baseline in a process of its own, unless it is finished."""
    if is_finished(resolved.config, resolved.run):
        return Completed(name="Cached", message=f"{resolved.run.name} was finished before")
    failure = run_alone(resolved, current_watcher().stop)
    return Failed(message=failure) if failure else Completed(message=resolved.run.name)


def _ended(conclusion: Conclusion) -> dict[str, Any] | State[Any]:
    if not conclusion.alarms:
        return conclusion.to_json()
    return Failed(message=conclusion.headline, data=Regressed(conclusion.headline))

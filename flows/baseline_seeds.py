"""The flow `baseline-seeds`: one config with several seeds, and one page over them."""

from collections.abc import Sequence
from typing import Any

from prefect import State, flow
from prefect.states import Failed

from flows.process.set_runs import EndedRun, explain_end, in_set, name_of_set
from flows.request import ConfigFile, Overrides
from flows.run_set import PlannedRun
from flows.seed_group import SeedGroup, Seeds
from rl_core.run_directory import RUNS_DIR
from tasks.comparison.record import GroupTracking, conclude_seeds, markdown
from tasks.pages.artifacts import show_page

explain_group = explain_end(SeedGroup)


class SeedsFailed(RuntimeError):
    """Runs of the group did not finish; the message names their seeds."""


@flow(
    name="baseline-seeds",
    flow_run_name=name_of_set(SeedGroup, "seeds"),
    on_crashed=[explain_group],
    on_cancellation=[explain_group],
)
def baseline_seeds(
    config: ConfigFile = "",
    overrides: Overrides = (),
    seeds: Seeds = "1-5",
    resume: str = "",
    fresh: bool = False,
    runs_dir: str = RUNS_DIR,
) -> dict[str, Any] | State[Any]:
    """Run a config with several seeds, at the same time where there are devices for it, and say what holds over them.
    Called again, the flow goes on where it was.

    Args:
        config: A config file, such as configs/quickstart.yaml.
        overrides: Changes to single keys of the config, each `key.path=value`.
        seeds: Numbers and ranges, such as 1-5 or 1,3,7-9.
        resume: Name of a group of seeds to continue; it wins over the other parameters.
        fresh: Make new runs that take nothing over from other runs, as a scheduled group should.
        runs_dir: Folder of the runs.

    Returns:
        The figures of the page. A group with a run that did not finish ends as Failed, after all runs were tried.
    """
    parameters = {"config": config, "overrides": overrides, "seeds": seeds, "resume": resume, "fresh": fresh}
    return in_set(SeedGroup, {**parameters, "runs_dir": runs_dir}, _conclude, before=_show_as_child)


def _show_as_child(group: SeedGroup, plan: PlannedRun) -> None:
    GroupTracking(group.config, group.name).take(plan.resolved.run)


def _conclude(group: SeedGroup, ended: Sequence[EndedRun]) -> dict[str, Any] | State[Any]:
    failed = [run for run in ended if run.failure is not None]
    message = "; ".join(f"{run.plan.name} did not finish: {f'{run.failure}'.splitlines()[0]}" for run in failed)
    tracking = GroupTracking(group.config, group.name)
    if len(failed) == len(ended):
        tracking.fail([run.plan.resolved.run for run in failed])
        raise SeedsFailed(message)
    failures = {run.plan.resolved.config.seed: f"{run.failure}" for run in failed}
    finished = [run.plan.resolved.run for run in ended if run.failure is None]
    page, figures = conclude_seeds(group.name, finished, failures, group.page)
    tracking.show(page, group.page)
    if failed:
        tracking.fail([run.plan.resolved.run for run in failed])
    text = markdown(page, group.page)
    show_page("seeds", text, about=page.groups[0].over_seeds)
    return Failed(message=message, data=SeedsFailed(message)) if failed else figures

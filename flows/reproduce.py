"""The flow that reproduces baselines, for a schedule. It writes one page, and fails when a baseline is not good."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from prefect import State, flow
from prefect.states import Failed
from pydantic import Field

from flows.process.set_runs import EndedRun, explain_end, in_set, name_of_set
from flows.reproducing import DEFAULT_SET, BaselineSet, PlannedBaseline
from flows.request import Overrides
from flows.run_set import PlannedRun
from flows.seed_group import OptionalSeeds
from rl_core.run_directory import RUNS_DIR
from tasks.pages.artifacts import show_page
from tasks.reproduction.baseline_set import Member
from tasks.reproduction.record import conclude, markdown, seeds_tracking

Baselines = Annotated[list[str], Field(min_length=1)]


class Regressed(RuntimeError):
    """A baseline of the set is not good; the message names all such baselines."""


explain_set = explain_end(BaselineSet)


@flow(
    name="reproduce-baselines",
    flow_run_name=name_of_set(BaselineSet, "reproduction"),
    on_crashed=[explain_set],
    on_cancellation=[explain_set],
)
def reproduce_baselines(
    baselines: Baselines = list(DEFAULT_SET),  # noqa: B006 (Prefect's form shows it)
    overrides: Overrides = (),
    seeds: OptionalSeeds = "",
    resume: str = "",
    fresh: bool = False,
    runs_dir: str = RUNS_DIR,
) -> dict[str, Any] | State[Any]:
    """Run published baselines, with one seed or several ones, and compare each with its published number and its
    earlier good runs.

    Args:
        baselines: Names of configs/baselines, config files, or `all`.
        overrides: Changes to single keys of every config, each `key.path=value`.
        seeds: Numbers and ranges, such as 1-3: each baseline is run with each of these seeds, and judged by all of its
            runs. Empty for the seed of its config.
        resume: Name of a set to continue; it wins over the other parameters.
        fresh: Make new runs that take nothing over from other runs, as a scheduled set should.
        runs_dir: Folder of the runs.

    Returns:
        The result of every baseline. A set with a baseline that is not good ends as Failed, after all baselines were
        run.
    """
    parameters = {"baselines": baselines, "overrides": overrides, "seeds": seeds, "resume": resume, "fresh": fresh}
    return in_set(BaselineSet, {**parameters, "runs_dir": runs_dir}, _conclude, before=_show_as_child)


def _show_as_child(baseline_set: BaselineSet, plan: PlannedRun) -> None:
    if len(baseline_set.seeds) > 1:
        planned = _baseline(plan)
        seeds_tracking(baseline_set.name, planned.path.stem, planned.resolved.config).take(planned.resolved.run)


def _baseline(plan: PlannedRun) -> PlannedBaseline:
    assert isinstance(plan, PlannedBaseline), "a set of baselines plans baselines"
    return plan


def _conclude(baseline_set: BaselineSet, ended: Sequence[EndedRun]) -> dict[str, Any] | State[Any]:
    members = _members(ended)
    page = conclude(baseline_set.name, members, baseline_set.page, command=baseline_set.command)
    text = markdown(page, baseline_set.page)
    show_page("reproduction", text, about=page.headline)
    if not page.alarms:
        return page.to_json()
    return Failed(message=page.headline, data=Regressed(page.headline))


def _members(ended: Sequence[EndedRun]) -> list[Member]:
    """The baselines of a set, each with the runs of its seeds."""
    by_baseline: dict[Path, list[tuple[PlannedBaseline, str | None]]] = {}
    for run in ended:
        plan = _baseline(run.plan)
        by_baseline.setdefault(plan.path, []).append((plan, run.failure))
    return [
        Member(
            name=path.stem,
            baseline=runs[0][0].baseline,
            config=runs[0][0].resolved.config,
            runs={plan.resolved.config.seed: plan.resolved.run for plan, _ in runs},
            failures={plan.resolved.config.seed: failure for plan, failure in runs if failure is not None},
        )
        for path, runs in by_baseline.items()
    ]

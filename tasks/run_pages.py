"""Which pages of a run are shown in Prefect, and when."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rl_core.planning.batches import BatchPlan
from tasks.artifacts import LivePage, show_page
from tasks.manifests import StageManifest
from tasks.pages import facts_table, links_page, rollouts_page, stage_page, steps_page
from tasks.plan_facts import plan_facts

if TYPE_CHECKING:
    from tasks.context import RunContext

_SECONDS_BETWEEN_TABLES = 15.0


def show_links(context: "RunContext", *, resume: str) -> None:
    """Where else the run is seen: MLflow, its folder, its commands, `resume` among them."""
    page = links_page(context.run, mlflow=context.tracking.address(), resume=resume)
    show_page(context.config.experiment, "links", page, about="Where the run is seen")


def show_plan(context: "RunContext", plan: BatchPlan) -> None:
    """The batch arithmetic."""
    page = f"# Batch plan\n\n{facts_table(plan_facts(context.config, plan))}"
    show_page(context.config.experiment, "batch-plan", page, about="Steps, batches and token budgets")


def show_stage(context: "RunContext", manifest: StageManifest) -> None:
    """A stage that stands; an epoch's with its last rollouts."""
    experiment = context.config.experiment
    show_page(experiment, manifest.stage, stage_page(manifest), about=f"What {manifest.stage} made")
    if manifest.stage.startswith("train-epoch-"):
        page = rollouts_page(context.run, int(manifest.result["last_step"]))
        show_page(experiment, "rollouts", page, about=f"Rollouts at the end of {manifest.stage}")


@contextmanager
def steps_shown(context: "RunContext") -> Iterator[LivePage]:
    """Yields the page of the steps so far, to be refreshed while they are trained; the end shows the last."""
    page = LivePage(
        context.config.experiment,
        "steps",
        lambda: steps_page(context.run),
        about="The newest steps",
        seconds=_SECONDS_BETWEEN_TABLES,
    )
    try:
        yield page
    finally:
        page.refresh(now=True)

"""Shows the pages of a run in Prefect."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from rl_core.planning.batches import BatchPlan
from tasks.cache.manifests import StageManifest
from tasks.pages.artifacts import LivePage, show_page
from tasks.pages.markdown import (
    facts_table,
    links_page,
    rollouts_page,
    stage_page,
    steps_page,
    validation_page,
)
from tasks.pages.plan_facts import plan_facts, work_rows, workers_title
from tasks.results.report_page import markdown_table
from tasks.results.run_facts import validated_steps

if TYPE_CHECKING:
    from tasks.context import RunContext

_SECONDS_BETWEEN_TABLES = 15.0
_VALIDATION, _ABOUT_VALIDATION = "validation", "Answers to held-out prompts while training"


def show_links(context: "RunContext", *, resume: str) -> None:
    """Show where else the run can be looked at: MLflow, its folder, its commands, such as `resume`."""
    page = links_page(context.run, mlflow=context.tracking.addresses(), resume=resume)
    show_page(f"{context.config.experiment}-links", page, about="Where to look at the run")


def show_plan(context: "RunContext", plan: BatchPlan) -> None:
    """Show the batch arithmetic."""
    page = f"# Batch plan\n\n{facts_table(plan_facts(context.config, plan))}"
    if rows := work_rows(context.config, plan):
        page += f"\n## {workers_title(context.config)}\n\n{markdown_table(('', 'together', 'each'), rows)}"
    show_page(f"{context.config.experiment}-batch-plan", page, about="Steps, batches and token budgets")


def show_stage(context: "RunContext", manifest: StageManifest) -> None:
    """Show a finished stage; an epoch with its last rollouts and its last validation."""
    experiment = context.config.experiment
    show_page(f"{experiment}-{manifest.stage}", stage_page(manifest), about=f"What {manifest.stage} made")
    if manifest.stage.startswith("train-epoch-"):
        page = _readable(lambda: rollouts_page(context.run, int(manifest.result["last_step"])))
        show_page(f"{experiment}-rollouts", page, about=f"Rollouts at the end of {manifest.stage}")
        if validated_steps(context.run):
            page = _readable(lambda: validation_page(context.run))
            show_page(f"{experiment}-{_VALIDATION}", page, about=_ABOUT_VALIDATION)


def _readable(write: Callable[[], str]) -> str:
    """A page. Where its files are lost or damaged the page says so, since a run must not end because of a page."""
    try:
        return write()
    except (OSError, ValueError) as error:
        return f"This page cannot be shown: {error}\n"


@contextmanager
def steps_shown(context: "RunContext") -> Iterator[Callable[[], None]]:
    """Yields a function that updates two pages during training: the newest steps, where that is due, and the newest
    validation, where there is a new one. Both are updated once more at the end."""
    experiment, run = context.config.experiment, context.run
    seconds, about = _SECONDS_BETWEEN_TABLES, "The newest steps"
    steps = LivePage(f"{experiment}-steps", lambda: steps_page(run), about=about, seconds=seconds)
    write = partial(_readable, lambda: validation_page(run))
    validation = LivePage(f"{experiment}-{_VALIDATION}", write, about=_ABOUT_VALIDATION, seconds=0.0)
    shown = validated_steps(run)

    def refresh(*, now: bool = False) -> None:
        nonlocal shown
        steps.refresh(now=now)
        validated = validated_steps(run)
        if validated and validated != shown:  # a run that starts again drops the validations that it repeats
            validation.refresh()
        shown = validated

    try:
        yield refresh
    finally:
        refresh(now=True)

"""Shows the pages of a run in Prefect."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rl_core.planning.batches import BatchPlan
from tasks.cache.manifests import StageManifest
from tasks.pages.artifacts import LivePage, show_page
from tasks.pages.markdown import (
    facts_table,
    links_page,
    markdown_table,
    rollouts_page,
    stage_page,
    steps_page,
    validation_page,
)
from tasks.pages.plan_facts import plan_facts, work_rows, workers_title
from tasks.results.validation_history import validated_steps

if TYPE_CHECKING:
    from tasks.context import RunContext

_SECONDS_BETWEEN_TABLES = 15.0
_VALIDATION, _ABOUT_VALIDATION = "validation", "Answers to held-out prompts while training"


def show_links(context: "RunContext", *, resume: str) -> None:
    """Show where else the run can be looked at: MLflow, its folder, its commands, such as `resume`."""
    page = links_page(context.run, mlflow=context.tracking.addresses(), resume=resume)
    show_page(context.config.experiment, "links", page, about="Where to look at the run")


def show_plan(context: "RunContext", plan: BatchPlan) -> None:
    """Show the batch arithmetic."""
    page = f"# Batch plan\n\n{facts_table(plan_facts(context.config, plan))}"
    if rows := work_rows(context.config, plan):
        dealt = [[row.what, row.together, row.each] for row in rows]
        page += f"\n## {workers_title(context.config)}\n\n{markdown_table(('', 'together', 'each'), dealt)}"
    show_page(context.config.experiment, "batch-plan", page, about="Steps, batches and token budgets")


def show_stage(context: "RunContext", manifest: StageManifest) -> None:
    """Show a finished stage; an epoch with its last rollouts and its last validation."""
    experiment = context.config.experiment
    show_page(experiment, manifest.stage, stage_page(manifest), about=f"What {manifest.stage} made")
    if manifest.stage.startswith("train-epoch-"):
        page = _readable(lambda: rollouts_page(context.run, int(manifest.result["last_step"])))
        show_page(experiment, "rollouts", page, about=f"Rollouts at the end of {manifest.stage}")
        if validated_steps(context.run):
            page = _readable(lambda: validation_page(context.run))
            show_page(experiment, _VALIDATION, page, about=_ABOUT_VALIDATION)


def _readable(write: Callable[[], str]) -> str:
    """A page. Where its files are lost or damaged the page says so, since a run must not end because of a page."""
    try:
        return write()
    except (OSError, ValueError) as error:
        return f"This page cannot be shown: {error}\n"


class TrainingPages:
    """The pages that are updated during training: the newest steps and the newest validation."""

    def __init__(self, context: "RunContext") -> None:
        experiment, run = context.config.experiment, context.run
        self._run = run
        self._steps = LivePage(
            experiment, "steps", lambda: steps_page(run), about="The newest steps", seconds=_SECONDS_BETWEEN_TABLES
        )
        self._validation = LivePage(
            experiment,
            _VALIDATION,
            lambda: _readable(lambda: validation_page(run)),
            about=_ABOUT_VALIDATION,
            seconds=0.0,
        )
        self._validated = validated_steps(run)

    def refresh(self, *, now: bool = False) -> None:
        """Update the steps when that is due, or `now`, and the validation when there is a new one."""
        self._steps.refresh(now=now)
        validated = validated_steps(self._run)
        if validated != self._validated:
            self._validated = validated
            if validated:  # a run that starts again drops the validations that it repeats
                self._validation.refresh()


@contextmanager
def steps_shown(context: "RunContext") -> Iterator[TrainingPages]:
    """Yields the pages, which are to be refreshed during training; they are updated once more at the end."""
    pages = TrainingPages(context)
    try:
        yield pages
    finally:
        pages.refresh(now=True)

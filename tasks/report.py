"""Report: write summary.json and one self-contained HTML page from the contents of the run's folder."""

from typing import TYPE_CHECKING

from prefect import State, task
from prefect.cache_policies import NO_CACHE

from rl_core.export.model_card import usage_lines
from rl_core.files import atomic_write_json, atomic_write_text
from rl_core.redaction import redact
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest
from tasks.context import RunContext, current_context, named
from tasks.results.report_data import gallery_rows, open_images, report_page
from tasks.results.report_page import render
from tasks.results.run_facts import EVALUATED_MODELS, RunFacts
from tasks.results.summary import summarise_run
from tasks.staging import StageOutcome, run_stage

if TYPE_CHECKING:
    from rl_core.tracking.mlflow_runs import MlflowRun


@task(name="report", task_run_name=named("report"), cache_policy=NO_CACHE)
def report(run: str) -> StageManifest | State[StageManifest]:
    """Write the summary and the report of an open run."""
    ended = run_stage(run, "report", make=_make, show=_show)
    context = current_context(run)
    context.tracking.show_headline(_headline(context.manifests["report"]))
    return ended


def _make(context: RunContext) -> StageOutcome:
    run = context.run
    facts = RunFacts(run)
    summary = summarise_run(facts)
    page = report_page(facts, commands=usage_lines(run.merged_model))
    atomic_write_text(run.report, redact(render(page)))
    atomic_write_json(run.summary, summary)
    return StageOutcome(outputs=[run.report, run.summary], result=summary["evaluation"])


def _headline(manifest: StageManifest) -> dict[str, float]:
    """The metrics by which MLflow compares pipelines."""
    return {f"accuracy/{name}": manifest.result[name]["accuracy"] for name in EVALUATED_MODELS}


def _show(mlflow_run: "MlflowRun", manifest: StageManifest, run: RunDirectory) -> None:
    mlflow_run.log_file(run.report)
    mlflow_run.log_file(run.summary)
    images = open_images(run)
    for number, row in enumerate(gallery_rows(RunFacts(run))):
        for place, uid in enumerate(row.image_uids):
            mlflow_run.log_image(f"samples/{number:03d}-{place}.png", images.image(uid))

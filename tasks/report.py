"""Report: write summary.json and one self-contained HTML page from the contents of the run's folder."""

from typing import TYPE_CHECKING, Any

from prefect import State, task
from prefect.cache_policies import NO_CACHE

from rl_core.evaluation.comparison import Comparison
from rl_core.export.model_card import usage_lines
from rl_core.files import atomic_write_json, atomic_write_text, read_json
from rl_core.redaction import redact
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest
from tasks.context import RunContext, current_context, named
from tasks.results.report_data import gallery_rows, open_images, report_page
from tasks.results.report_page import render
from tasks.results.run_facts import EVALUATED_MODELS, RunFacts, throughput
from tasks.results.verdict import remarks, verdict
from tasks.staging import StageOutcome, run_stage

if TYPE_CHECKING:
    from rl_core.tracking.mlflow_runs import MlflowPipeline, MlflowRun


@task(name="report", task_run_name=named("report"), cache_policy=NO_CACHE)
def report(run: str) -> StageManifest | State[StageManifest]:
    """Write the summary and the report of an open run."""
    ended = run_stage(run, "report", make=_make, show=_show)
    context = current_context(run)
    result = context.manifests["report"].result
    # The metrics by which MLflow compares pipelines.
    headline = {f"accuracy/{name}": result[name]["accuracy"] for name in EVALUATED_MODELS}

    def show(pipeline: "MlflowPipeline") -> None:
        shown = pipeline.parent.latest_metric
        pipeline.parent.log_metrics({name: value for name, value in headline.items() if shown(name) != value})

    context.tracking.show_pipeline("the pipeline's figures", show)
    summary = read_json(context.run.summary)
    context.tracking.conclude([summary["verdict"], *summary["look_at"]])
    return ended


def _make(context: RunContext) -> StageOutcome:
    run = context.run
    facts = RunFacts(run)
    summary = summarise_run(facts)
    page = report_page(facts, commands=usage_lines(run.merged_model))
    atomic_write_text(run.report, redact(render(page)))
    atomic_write_json(run.summary, summary)
    return StageOutcome(outputs=[run.report, run.summary], result=summary["evaluation"])


def _show(mlflow_run: "MlflowRun", manifest: StageManifest, run: RunDirectory) -> None:
    mlflow_run.log_file(run.report)
    mlflow_run.log_file(run.summary)
    images = open_images(run)
    for number, (item, _) in enumerate(gallery_rows(RunFacts(run))):
        for place, uid in enumerate(item.image_uids):
            mlflow_run.log_image(f"samples/{number:03d}-{place}.png", images.image(uid))


def summarise_run(facts: RunFacts) -> dict[str, Any]:
    """What summary.json says. Raises FileNotFoundError where the run was not evaluated."""
    run = facts.run
    evaluation: dict[str, Any] = {
        name: facts.headline(name).model_dump(mode="json", include={"accuracy", "n", "failed_rewards", "ci95", "mode"})
        for name in EVALUATED_MODELS
    }
    comparison = facts.comparison()
    if comparison is not None:
        evaluation["comparison"] = _comparison_figures(comparison)
    rewards = [record["reward/overall"] for record in facts.metrics if "reward/overall" in record]
    return {
        "run": run.name,
        "experiment": facts.config.experiment,
        "evaluation": evaluation,
        "verdict": verdict(facts),
        "look_at": remarks(facts),
        "reward": {"first_step": rewards[0], "last_step": rewards[-1]} if rewards else None,
        "steps": len(rewards),
        "timings_s": {manifest.stage: round(manifest.seconds, 3) for manifest in facts.stages},
        "reused": {manifest.stage: manifest.reused_from for manifest in facts.stages if manifest.reused_from},
        "throughput": throughput(facts.timings),
        "merged_model": str(run.merged_model),
        "report": str(run.report),
    }


def _comparison_figures(comparison: Comparison) -> dict[str, Any]:
    assert comparison.counts is not None, "both models gave one response to each item"
    return {
        "both": comparison.counts.both,
        "only_base": comparison.counts.only_first,
        "only_trained": comparison.counts.only_second,
        "neither": comparison.counts.neither,
        "difference": comparison.difference,
        "difference_ci95": list(comparison.ci95),
        "p_value": comparison.p_value,
    }

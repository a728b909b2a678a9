"""Cold start: a short supervised stage, after which the model answers in the expected format."""

from typing import TYPE_CHECKING

from prefect import State, task
from prefect.cache_policies import NO_CACHE

from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest, finite
from tasks.context import RunContext, named
from tasks.staging import StageOutcome, run_stage, start_workers

if TYPE_CHECKING:
    from rl_core.tracking.mlflow_runs import MlflowRun


@task(name="cold start", task_run_name=named("cold start"), cache_policy=NO_CACHE)
def cold_start(run: str) -> StageManifest | State[StageManifest]:
    """Train the initial model of an open run on the cold start's targets, and write it as the base model of the run."""
    return run_stage(run, "cold-start", make=_make, show=_show)


def _make(context: RunContext) -> StageOutcome:
    start_workers(context)
    metrics = context.session.run_cold_start()
    return StageOutcome(outputs=[context.run.base_model], result=finite(metrics))


def _show(mlflow_run: "MlflowRun", manifest: StageManifest, run: RunDirectory) -> None:
    mlflow_run.log_metrics(manifest.result)

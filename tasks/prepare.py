"""Prepare: write the configured model, and the rows as prompts."""

from typing import TYPE_CHECKING

from prefect import State, task
from prefect.cache_policies import NO_CACHE

from rl_core.planning.certificates import certificate_problem
from rl_core.problem import raise_if_fatal
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest
from tasks.cache.reuse import bring_folder
from tasks.context import RunContext, current_context, named
from tasks.preparation import prepare_run
from tasks.staging import StageOutcome, run_stage
from tasks.tracking.run_tracking import log_split

if TYPE_CHECKING:
    from rl_core.tracking.mlflow_runs import MlflowRun


@task(name="prepare", task_run_name=named("prepare data and model"), cache_policy=NO_CACHE)
def prepare(run: str) -> StageManifest | State[StageManifest]:
    """Write the initial model and the prepared rows of an open run."""
    ended = run_stage(run, "prepare", make=_make, show=_show)
    context = current_context(run)
    context.tracking.show_pipeline("the data", lambda pipeline: _show_inputs(pipeline.parent, context.run))
    return ended


def _make(context: RunContext) -> StageOutcome:
    run = context.run

    def bring(fingerprint: str) -> bool:
        """Where the stage of another run differs in the initial model alone, as for another seed."""
        wanted = context.wanted("prepare")
        return context.reuse and bring_folder(
            run, wanted, run.data, fits=lambda manifest: manifest.result.get("fingerprint") == fingerprint
        )

    with context.stop.breaking_off():
        manifest = prepare_run(context.located, run, progress=context.progress, bring=bring)
        # The plan could not look at a model that had to be downloaded.
        raise_if_fatal([*filter(None, [certificate_problem(context.located.model.source)])])
    return StageOutcome(outputs=[run.initial_model, run.data], result=manifest.model_dump(mode="json"))


def _show_inputs(parent: "MlflowRun", run: RunDirectory) -> None:
    log_split(parent, run, "train")
    log_split(parent, run, "validation")


def _show(mlflow_run: "MlflowRun", manifest: StageManifest, run: RunDirectory) -> None:
    _show_inputs(mlflow_run, run)
    for split in ("train", "validation"):
        summary = manifest.result["splits"][split]
        mlflow_run.log_metrics(
            {f"{split}/{name}": summary[name] for name in ("rows", "rejected", "overlong", "images")}
        )

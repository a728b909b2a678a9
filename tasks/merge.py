"""Merge: write the trained model as a Hugging Face folder, check it in fresh processes, describe it, and upload it if
the config says so."""

from typing import TYPE_CHECKING

from prefect import State, task
from prefect.cache_policies import NO_CACHE

from rl_core.config.model import TinyModel
from rl_core.config.tolerances import merge_tolerance
from rl_core.export.hub import push_to_hub
from rl_core.export.model_card import CARD_NAME, AccuracyRow, CardFacts, write_model_card
from rl_core.export.verification import Verification, verify_merged
from rl_core.files import committed_folder, read_json
from rl_core.planning.certificates import certificate_words
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest
from tasks.context import RunContext, current_context, named
from tasks.results.run_facts import EVALUATED_MODELS, RunFacts, environment_facts
from tasks.staging import StageOutcome, run_stage
from tasks.tracking.registration import register_model

if TYPE_CHECKING:
    from rl_core.tracking.mlflow_runs import MlflowRun


@task(name="merge", task_run_name=named("merge and prove"), cache_policy=NO_CACHE)
def merge(run: str) -> StageManifest | State[StageManifest]:
    """Write the merged model of an open run. The stage fails unless the model reproduces the checkpoint's probe."""
    return run_stage(run, "merge", make=_merge, show=_show)


@task(name="model card", task_run_name=named("describe the model"), cache_policy=NO_CACHE)
def describe(run: str) -> StageManifest | State[StageManifest]:
    """Write the card of the merged model, with its evaluations, and register the model in MLflow."""
    ended = run_stage(run, "model-card", make=_describe, show=_show_card)
    context = current_context(run)
    register_model(context.tracking, context.run)
    return ended


@task(name="push", task_run_name=named("push to the hub"), cache_policy=NO_CACHE)
def push(run: str) -> StageManifest | State[StageManifest]:
    """Upload the merged model of an open run to the private repository `merge.push`."""
    return run_stage(run, "push", make=_push, show=_show)


def _merge(context: RunContext) -> StageOutcome:
    run, config = context.run, context.config
    with committed_folder(run.merged_model) as folder:
        checkpoint = context.session.export_trained(folder)
        # The fresh processes of the verification need the memory that the workers hold.
        context.close_session()
        # A stop ends the checks at once: a model that was not verified is written again.
        with (
            context.stop.breaking_off(),
            context.progress.wait("verify the merged model: load it in transformers and in vLLM"),
        ):
            verified = verify_merged(folder, checkpoint.folder / "probe", merge_tolerance(config))
    result = {
        "step": checkpoint.step,
        "proof": {"num_tokens": verified.num_tokens, "largest_difference": dict(verified.largest_difference)},
    }
    return StageOutcome(outputs=[run.merged_model], result=result)


def _describe(context: RunContext) -> StageOutcome:
    run, config, facts = context.run, context.config, RunFacts(context.run)
    merged, data = context.manifests["merge"].result, context.manifests["prepare"].result
    rows, source = data["splits"]["train"], config.model.source
    card = CardFacts(
        run=run.name,
        base=f"tiny {source.family}, random" if isinstance(source, TinyModel) else source.path,
        step=merged["step"],
        algorithm=f"advantage {config.algorithm.advantage.label}, loss {config.algorithm.loss.label}",
        data=f"{rows['source']}, {rows['rows']} prompts",
        data_fingerprint=data["fingerprint"],
        reward=config.reward.description,
        accuracy=[
            AccuracyRow(name=f"{evaluated}, {mode}", n=result.n, accuracy=result.accuracy, ci95=result.ci95)
            for evaluated in EVALUATED_MODELS
            for mode, result in facts.results(evaluated).items()
        ],
        verification=Verification(**merged["proof"]),
        versions=environment_facts(),
        certificate=certificate_words(read_json(run.merged_model / "config.json")),
        hub_name=config.merge.push,
    )
    write_model_card(run.merged_model, card)
    return StageOutcome(outputs=[run.merged_model / CARD_NAME], result={})


def _push(context: RunContext) -> StageOutcome:
    repository = context.config.merge.push
    assert repository is not None, "the flow pushes only where merge.push is set"
    return StageOutcome(outputs=[], result={"address": push_to_hub(context.run.merged_model, repository)})


def _show(mlflow_run: "MlflowRun", manifest: StageManifest, run: RunDirectory) -> None:
    """Tell MLflow where the weights are; they are not copied."""
    mlflow_run.set_tags({"merged_model": run.merged_model.absolute(), **manifest.result})


def _show_card(mlflow_run: "MlflowRun", manifest: StageManifest, run: RunDirectory) -> None:
    mlflow_run.log_file(run.merged_model / CARD_NAME)

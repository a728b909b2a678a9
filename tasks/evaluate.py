"""Evaluate: the held-out rows, answered by the base or the trained model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from prefect import State, task
from prefect.cache_policies import NO_CACHE

from rl_core.evaluation.base_answers import noted_answers
from rl_core.evaluation.items import RIGHT_COLUMN, EvaluationItem
from rl_core.evaluation.response_file import ResponseFile
from rl_core.evaluation.result import SOURCE_COLUMN, read_evaluation, write_evaluation
from rl_core.run_directory import RunDirectory
from rl_core.types import EvaluatedModel
from tasks.cache.manifests import StageManifest
from tasks.context import RunContext, named
from tasks.staging import StageOutcome, run_stage
from tasks.tracking.run_tracking import ITEMS_TABLE, log_split

if TYPE_CHECKING:
    from rl_core.tracking.mlflow_runs import MlflowRun
    from rl_core.tracking.tracker import Table


_SHOWN_FIELDS = ("uid", "mode", "question", "answer", "response", "parsed", "is_right", "length", "finish_reason")


@task(name="evaluate", task_run_name=named("evaluate {model}"), cache_policy=NO_CACHE)
def evaluate(run: str, model: EvaluatedModel) -> StageManifest | State[StageManifest]:
    """Write responses and figures of one model; a stage that is continued asks for the missing responses only."""

    stage = f"evaluate-{model}"

    def make(context: RunContext) -> StageOutcome:
        folder = context.run.evaluation(model)
        responses = ResponseFile(folder.with_suffix(".answers.jsonl"), key=context.wanted(stage).key)
        # The validation before the first step was of the base model.
        known = noted_answers(context.run.validation(0), context.wanted(stage).key) if model == "base" else {}
        items = context.session.evaluate(model, responses, known=known)
        results = write_evaluation(folder, items)
        responses.remove()
        figures: dict[str, Any] = {mode: result.model_dump(mode="json") for mode, result in results.items()}
        return StageOutcome(outputs=[folder], result=figures)

    return run_stage(run, stage, make=make, show=show_evaluation)


def show_evaluation(mlflow_run: "MlflowRun", manifest: StageManifest, run: RunDirectory) -> None:
    """Figures, items and data of a finished evaluation, in its nested run."""
    log_split(mlflow_run, run, "validation")
    for mode, result in manifest.result.items():
        low, high = result["ci95"]
        numbers = {name: value for name, value in result.items() if isinstance(value, int | float)}
        numbers |= {"ci95_low": low, "ci95_high": high}
        sources = [row for row in result["categories"] if row["column"] == SOURCE_COLUMN]
        numbers |= {f"{row['value']}/accuracy": row["accuracy"] for row in sources}
        mlflow_run.log_metrics({f"{mode}/{name}": value for name, value in numbers.items()})
    model = manifest.stage.removeprefix("evaluate-")
    items = [item for of_mode in read_evaluation(run.evaluation(model)).values() for item in of_mode]
    mlflow_run.log_table(ITEMS_TABLE, _table(items))


def _table(items: Sequence[EvaluationItem]) -> "Table":
    columns = {name: [getattr(item, name) for item in items] for name in _SHOWN_FIELDS}
    return {RIGHT_COLUMN if name == "is_right" else name: values for name, values in columns.items()}

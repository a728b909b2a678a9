"""Logs prepared rows as inputs of MLflow runs."""

from typing import TYPE_CHECKING, Final, Literal

from rl_core.data.manifest import DataManifest
from rl_core.run_directory import RunDirectory

if TYPE_CHECKING:
    from rl_core.tracking.mlflow_runs import MlflowRun

Split = Literal["train", "validation"]

_CONTEXTS: Final = {"train": "training", "validation": "evaluation"}


def log_split(mlflow_run: "MlflowRun", run: RunDirectory, split: Split) -> None:
    """Log a split of the run's data as an input, with the fingerprint of the whole preparation as its digest.

    Raises:
        TrackerUnavailable: MLflow does not answer.
    """
    manifest = DataManifest.read(run.data)
    summary = manifest.splits[split]
    mlflow_run.log_dataset(
        name=f"{split} ({summary.source})",
        digest=manifest.fingerprint,
        source=run.data,
        context=_CONTEXTS[split],
        rows=summary.rows,
    )

"""A finished run of a baseline, and what it measured. Imports neither Prefect nor torch."""

from dataclasses import dataclass

from rl_core.config.run import RunConfig
from rl_core.evaluation.comparison import Shares
from rl_core.evaluation.result import item_shares, read_evaluation, read_results
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import read_manifest
from tasks.results.run_facts import EVALUATED_MODELS, RunFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedRun:
    """A run with a report, its config, and when the report was written (UTC, ISO 8601)."""

    run: RunDirectory
    config: RunConfig
    finished_at: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRun:
    """What a finished run measured in the first mode of its config: the accuracy of the model that training started
    from, and of the trained model the share of right responses to each item."""

    finished: FinishedRun
    before: float
    trained: Shares
    samples_per_item: int


def read_finished(run: RunDirectory) -> FinishedRun:
    """Read a finished run. Raises ConfigError where its config is refused, FileNotFoundError where it has no report."""
    manifest = read_manifest(run, "report")
    if manifest is None:
        raise FileNotFoundError(f"{run.name} is not finished: it has no report")
    return FinishedRun(run=run, config=RunFacts(run).config, finished_at=manifest.finished_at)


def read_measured(run: RunDirectory) -> MeasuredRun:
    """Read what a run measured. Raises ValueError where a file is damaged, or the config is refused. Raises OSError
    where a file cannot be read; FileNotFoundError where the run is not finished."""
    finished = read_finished(run)
    mode = finished.config.evaluation.modes[0]
    base, trained = (read_results(run.evaluation(evaluated))[mode] for evaluated in EVALUATED_MODELS)
    return MeasuredRun(
        finished=finished,
        before=base.accuracy,
        trained=trained_shares(finished),
        samples_per_item=trained.samples // trained.n,
    )


def trained_shares(finished: FinishedRun) -> Shares:
    """Share of the trained model's right responses to each item. Raises as read_measured does."""
    items = read_evaluation(finished.run.evaluation("trained"))
    return item_shares(items[finished.config.evaluation.modes[0]])

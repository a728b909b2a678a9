"""Finished runs, what they measured, and the published result that they are to reproduce. Imports neither Prefect nor
torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rl_core.config.run import RunConfig
from rl_core.config.stages import PublishedConfig
from rl_core.evaluation.comparison import Shares, group_accuracy
from rl_core.evaluation.protocols.protocol import departures
from rl_core.evaluation.protocols.registry import protocol_named
from rl_core.evaluation.reproduction import Reproduction, judge_reproduction
from rl_core.evaluation.result import item_shares, read_evaluation, read_results
from rl_core.planning.batches import batch_plan, row_problems
from rl_core.planning.machine_rules import file_problems
from rl_core.planning.rules import value_problems
from rl_core.problem import Problem
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import read_manifest
from tasks.cache.stages import dotted_settings
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
    samples_per_item: float


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
        samples_per_item=trained.samples / trained.n,
    )


def trained_shares(finished: FinishedRun) -> Shares:
    """Share of the trained model's right responses to each item. Raises as read_measured does."""
    items = read_evaluation(finished.run.evaluation("trained"))
    return item_shares(items[finished.config.evaluation.modes[0]])


_HARMLESS = (
    "seed",
    "actor.micro_batch_size_per_device_",
    "data.train.revision",
    "data.validation.revision",
    "evaluation.categories",
    "merge.probe_tolerance",
    "model.attention",
    "model.gradient_checkpointing",
    "model.log_prob_chunk_tokens",
    "model.source.revision",
    "reward.async_calls",
    "reward.batch_timeout_seconds",
    "reward.max_failed_share",
    "reward.memory_limit_gib",
    "reward.timeout_seconds",
    "reward.workers",
    "rollout.cpu_kv_cache_gib",
    "rollout.enforce_eager",
    "rollout.gpu_memory_utilization",
    "rollout.max_log_prob_gap",
    "rollout.max_mean_log_prob_gap",
    "rollout.max_num_seqs",
    "rollout.min_log_prob_correlation",
    "trainer.offload",
    "trainer.save_",
    "trainer.val_",
)
"""Beginnings of keys that may differ from the baseline's: they change memory, speed and noise, but not the expected
accuracy."""


def published_of(config: RunConfig) -> PublishedConfig:
    """The published result that a config names. Raises ValueError when it names none."""
    if config.published is None:
        raise ValueError(f"{config.experiment} reproduces nothing: its config has no section `published`")
    return config.published


def dry_run_problems(config: RunConfig) -> list[Problem]:
    """Problems of a baseline that its config alone shows, without data, model or machine: values, batch sizes, files,
    and numbers of steps that differ from the reference. Raises ValueError when the config has no section
    `published`."""
    published = published_of(config)
    problems = [
        *value_problems(config),
        *row_problems(config, published.train_rows),
        *file_problems(config),
    ]
    return problems if any(problem.fatal for problem in problems) else [*problems, *_step_problems(config, published)]


def _step_problems(config: RunConfig, published: PublishedConfig) -> Iterator[Problem]:
    plan = batch_plan(config, published.train_rows)
    for name, ours in (("steps_per_epoch", plan.steps_per_epoch), ("total_steps", plan.total_steps)):
        theirs = getattr(published, name)
        if ours != theirs:
            yield Problem(
                where=f"published.{name}",
                what=f"the run would take {ours}, the reference takes {theirs}",
                fix="restore the batch size, the epochs and the rows of the baseline",
            )


def obstacles(config: RunConfig, baseline: RunConfig) -> list[str]:
    """Why a run of `config` cannot be compared with `baseline`'s published number: evaluation and changed keys."""
    changed = [f"{key} is {ours}, the baseline's {theirs}" for key, ours, theirs in changes(config, baseline)]
    return [*departures(config, protocol_named(published_of(baseline).protocol)), *changed]


def judge_runs(runs: Mapping[int, MeasuredRun], baseline: RunConfig) -> Reproduction:
    """Compare finished runs with the published number of `baseline`, which is the config as it is shipped. Raises
    ValueError where `baseline` has no section `published`, or the runs measured different items."""
    measured = list(runs.values())
    return judge_reproduction(
        published_of(baseline),
        seeds=list(runs),
        before=fmean(run.before for run in measured),
        trained=group_accuracy([run.trained for run in measured], samples_per_item=measured[0].samples_per_item),
        obstacles=obstacles(measured[0].finished.config, baseline),
    )


def changes(config: RunConfig, baseline: RunConfig) -> Iterator[tuple[str, Any, Any]]:
    """(key, value in `config`, value in `baseline`) of the keys that differ and can change the expected accuracy."""
    ours, theirs = dotted_settings(config), dotted_settings(baseline)
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key) and not key.startswith(_HARMLESS):
            yield key, ours.get(key), theirs.get(key)

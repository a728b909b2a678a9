"""The published result that runs are to reproduce. Imports neither Prefect nor torch."""

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from rl_core.config.run import RunConfig
from rl_core.config.stages import PublishedConfig
from rl_core.evaluation.comparison import group_accuracy
from rl_core.evaluation.protocols.protocol import departures
from rl_core.evaluation.protocols.registry import protocol_named
from rl_core.evaluation.reproduction import Reproduction, judge_reproduction
from rl_core.planning.batches import batch_plan, row_problems
from rl_core.planning.machine_rules import file_problems
from rl_core.planning.rules import value_problems
from rl_core.problem import Problem
from tasks.cache.named_files import located_config
from tasks.cache.stages import dotted_settings
from tasks.results.run_facts import RunFacts

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
        *file_problems(located_config(config)),
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
    located = located_config(config)
    return [*departures(located, protocol_named(published_of(baseline).protocol)), *changed]


def judge_runs(runs: Mapping[int, RunFacts], baseline: RunConfig) -> Reproduction:
    """Compare finished runs with the published number of `baseline`, which is the config as it is shipped. Raises
    ValueError where `baseline` has no section `published`, or the runs measured different items."""
    measured = list(runs.values())
    answers = measured[0].headline("trained")
    return judge_reproduction(
        published_of(baseline),
        seeds=list(runs),
        before=fmean(run.headline("base").accuracy for run in measured),
        trained=group_accuracy([run.shares for run in measured], samples_per_item=answers.samples / answers.n),
        obstacles=obstacles(measured[0].config, baseline),
    )


def changes(config: RunConfig, baseline: RunConfig) -> Iterator[tuple[str, Any, Any]]:
    """(key, value in `config`, value in `baseline`) of the keys that differ and can change the expected accuracy."""
    ours, theirs = dotted_settings(config), dotted_settings(baseline)
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key) and not key.startswith(_HARMLESS):
            yield key, ours.get(key), theirs.get(key)

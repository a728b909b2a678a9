"""A run that has taken some steps, as training leaves its files."""

import math
from collections.abc import Callable, Mapping

from rl_core.config.run import RunConfig
from rl_core.config.stages import TrackingConfig
from rl_core.evaluation.items import write_items
from rl_core.records.metrics_log import RunLogs
from rl_core.records.rollout_files import write_rollouts
from rl_core.run_directory import RunDirectory
from rl_core.tracking.generations import generation_tables
from rl_core.tracking.tracker import Table
from rl_core.types import Score
from tests.rl_core.builders import make_group, make_train_group
from tests.rl_core.evaluation.builders import make_items


def take_steps(run: RunDirectory, *steps: int) -> None:
    """Write rollouts and metrics of the steps; the second prompt's group was not trained on."""
    logs = RunLogs(run)
    for step in steps:
        groups = [make_group(uid, lengths=(3, 1)) for uid in ("p0", "p1", "p2")]
        scores = {r.key: Score(components={"overall": step / 7, "format": 1.0}) for g in groups for r in g.rollouts}
        trained = [make_train_group(uid, lengths=(3, 1)) for uid in ("p0", "p2")]
        write_rollouts(run.rollouts(step), groups, scores, trained, step=step)
        logs.log_step(step, {"reward/overall": step / 7, "actor/grad_norm": math.nan if step == 2 else 0.25})


def validate(run: RunDirectory, step: int) -> None:
    """Write the answers to three held-out prompts, of which the first one is right, and their metrics; `take_steps` of
    a step does not come after it."""
    write_items(run.validation(step), make_items("+--"))
    RunLogs(run).log_step(step, {"val/accuracy": 1 / 3})


def two_of_each(run: RunDirectory) -> Callable[[int], Mapping[str, Table]]:
    """What a follower is given, with two rows a table."""
    tracking = TrackingConfig(generations_to_log=2, val_generations_to_log=2)
    return lambda step: generation_tables(run, step, tracking)


def a_config(**tracking: object) -> RunConfig:
    """The smallest configuration that shows its run in the places named, and not in MLflow."""
    source = {"type": "counting", "size": 8, "scene_seed": 1}
    return RunConfig.model_validate(
        {
            "experiment": "counting",
            "data": {"train": source, "validation": {**source, "scene_seed": 2}},
            "model": {"source": {"type": "tiny"}},
            "reward": {"function": "count"},
            "tracking": {"mlflow_uri": None, **tracking},
        }
    )

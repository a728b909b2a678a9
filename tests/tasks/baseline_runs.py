"""Finished runs of a published baseline, by the writers that real runs use."""

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from rl_core.config.loading import dump_config, load_config
from rl_core.config.run import RunConfig
from rl_core.evaluation.result import write_evaluation
from rl_core.records.metrics_log import RunLogs
from rl_core.run_directory import RunDirectory
from tasks.reproduction.baseline_result import BaselineResult
from tasks.reproduction.baseline_set import Member
from tests.rl_core.evaluation.builders import make_items
from tests.tasks.finished_run import finish_stage

NAME = "qwen2_5_vl_7b_geo3k_grpo"
"""Published: 0.37 -> 0.48 on 601 items."""
UNPUBLISHED = "qwen2_5_vl_3b_geo3k_dapo"
ITEMS = 601


def baseline(name: str = NAME, *overrides: str) -> RunConfig:
    """A config of configs/baselines; the tests run at the repository's root."""
    return load_config(Path("configs/baselines") / f"{name}.yaml", ["tracking.mlflow_uri=null", *overrides])


def week(folder: Path, number: int, right: int, *overrides: str, name: str = NAME) -> Member:
    """The baseline in one week, with one run, and so many of 601 answers right."""
    return week_of_seeds(folder, number, {None: right}, *overrides, name=name)


def week_of_seeds(
    folder: Path, number: int, right: Mapping[int | None, int], *overrides: str, name: str = NAME
) -> Member:
    """The baseline in one week, with a run for each seed.

    Args:
        folder: Folder of the runs.
        number: Number of the week.
        right: [seed] -> how many of 601 answers are right; None stands for the seed of the config.
        overrides: Laid over the config.
        name: The baseline.
    """
    runs = {}
    for seed, count in right.items():
        config = baseline(name, *overrides, *([] if seed is None else [f"seed={seed}"]))
        run = RunDirectory(folder / "-".join([name, *([] if seed is None else [f"seed-{seed}"]), f"week-{number}"]))
        _finish(run, config, number, count)
        runs[config.seed] = run
    return Member(name=name, baseline=baseline(name), config=config, runs=runs)


def run_of(member: Member | BaselineResult) -> RunDirectory:
    """The only run of a member or of its result."""
    (run,) = member.runs.values()
    return run


@cache
def _evaluation(right: int) -> dict[str, bytes]:
    """The files of an evaluation; summing one up takes longer than all else here, and many runs have the same."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "evaluation"
        write_evaluation(written, {"sampled": make_items("+" * right + "-" * (ITEMS - right), mode="sampled")})
        return {path.name: path.read_bytes() for path in written.iterdir()}


def _finish(run: RunDirectory, config: RunConfig, week: int, right: int) -> None:
    run.root.mkdir(parents=True)
    run.config.write_text(dump_config(config))
    RunLogs(run).log_step(1, {"reward/overall": 0.1 * week})
    for evaluated, count in (("base", 222), ("trained", right)):
        run.evaluation(evaluated).mkdir(parents=True)
        for name, content in _evaluation(count).items():
            (run.evaluation(evaluated) / name).write_bytes(content)
    finish_stage(run, "train-epoch-001", {"versions": {"sightline": f"0.1.{week}"}})
    finish_stage(run, "report", {}, finished_at=f"2026-01-{week:02d}T05:00:00+00:00")

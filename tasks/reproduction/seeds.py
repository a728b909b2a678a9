"""The runs of a baseline with several seeds as a group: a page with each seed's curve, and a run in MLflow that has the
seeds' runs as its children."""

from pathlib import Path

from rl_core.config.run import RunConfig
from tasks.comparison.seeds import GroupTracking, conclude_seeds
from tasks.reproduction.baseline_result import BaselineResult


def seeds_tracking(set_name: str, baseline: str, config: RunConfig) -> GroupTracking:
    """The run in MLflow of a baseline's seeds.

    Args:
        set_name: Name of the set of baselines.
        baseline: Name of the baseline.
        config: The config of its runs, whatever its seed.
    """
    return GroupTracking(config, f"{baseline}-{set_name}")


def conclude_baseline_seeds(result: BaselineResult, config: RunConfig, set_page: Path, *, set_name: str) -> None:
    """Write the page of a baseline's seeds beside the page of the set, and show it in MLflow. A baseline with one seed
    has no such page, and one without an accuracy is only shown as failed.

    Args:
        result: The baseline's result.
        config: The config of its runs, whatever its seed.
        set_page: The page of the set.
        set_name: Name of the set.

    Raises:
        OSError: a file cannot be written.
    """
    if len(result.runs) == 1:
        return
    tracking = seeds_tracking(set_name, result.name, config)
    if result.accuracies:
        out = set_page.with_name(f"seeds-{result.name}.html")
        page, _ = conclude_seeds(result.name, [result.runs[seed] for seed in result.accuracies], result.failures, out)
        tracking.show(page, out)
    if result.failures:
        tracking.fail([result.runs[seed] for seed in result.failures])

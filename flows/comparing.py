"""Compares the runs that a command or a flow names. Imports no Prefect, so that the command is quick."""

from collections.abc import Sequence
from pathlib import Path

from flows.request import find_run
from flows.seed_group import SeedGroup
from rl_core.run_directory import RunDirectory
from tasks.comparison.groups import RunGroup, group_runs
from tasks.comparison.page import ComparisonPage
from tasks.comparison.record import own_page, show_comparison, write_comparison


def asked_groups(runs: Sequence[str], groups: Sequence[str], *, runs_dir: str) -> list[RunGroup]:
    """The groups that a command or a flow names: folders or names of runs and names of groups of seeds, and
    `NAME=RUN,RUN` texts. Raises ValueError where there is no such run, or a group is not written as `NAME=RUN,RUN`."""
    named = dict(_named_group(text, runs_dir) for text in groups)
    if len(named) < len(groups):
        raise ValueError("two of the --group options have one name")
    of_seeds = [name for name in runs if SeedGroup.is_there(name, runs_dir)]
    named |= {name: _runs_of_group(name, runs_dir) for name in of_seeds}
    return group_runs([find_run(run, runs_dir) for run in runs if run not in of_seeds], named)


def _runs_of_group(name: str, runs_dir: str) -> list[RunDirectory]:
    """The runs of a group of seeds that were started."""
    planned = [plan.resolved for plan in SeedGroup.saved(name, runs_dir).planned()]
    runs = [resolved.predecessor or resolved.run for resolved in planned]  # whatever files the config names now
    started = [run for run in runs if run.config.is_file()]
    if not started:
        raise ValueError(f"no run of the group {name} was started")
    return started


def _named_group(text: str, runs_dir: str) -> tuple[str, list[RunDirectory]]:
    name, separator, runs = text.partition("=")
    if not separator or not name or not runs:
        raise ValueError(f"--group {text!r} must read NAME=RUN,RUN")
    return name, [find_run(run, runs_dir) for run in runs.split(",")]


def compare_run_groups(
    groups: Sequence[RunGroup], *, out: Path, num_items: int, mlflow_uri: str | None
) -> tuple[ComparisonPage, Path]:
    """Write the comparison, and show it in the MLflow at `mlflow_uri`, or else in that of the first run if it has one.
    Returns the page and its file: `out`, or a file beside it if that has the page of another comparison. Raises
    ValueError where there are more groups than a chart has colours, or no mode in which all runs were evaluated.
    """
    out = own_page(groups, out)
    page = write_comparison(groups, out, num_items=num_items)
    address = mlflow_uri or groups[0].runs[0].config.tracking.mlflow_address
    if address:
        show_comparison(page, groups, out, mlflow_uri=address)
    return page, out

"""The flow that compares runs, for deployments. It writes the page of `sightline compare`, and its figures to
Prefect."""

from pathlib import Path
from typing import Any

from prefect import flow

from flows.comparing import asked_groups, compare_run_groups
from rl_core.run_directory import RUNS_DIR
from tasks.comparison.record import as_json, markdown
from tasks.pages.artifacts import show_page


@flow(name="compare")
def compare(
    runs: list[str] | None = None,
    groups: list[str] | None = None,
    out: str = "comparison.html",
    items: int = 24,
    mlflow_uri: str | None = None,
    runs_dir: str = RUNS_DIR,
) -> dict[str, Any]:
    """Compare runs. Runs that differ only in the seed are one group; the first group is the reference.

    Args:
        runs: Folders or names of runs, and names of groups of seeds.
        groups: Groups of runs, each `NAME=RUN,RUN`.
        out: The page to write, and the figures beside it as JSON; another comparison that lies there stays.
        items: How many flipped items to show for each group.
        mlflow_uri: Address of the MLflow to show it in; by default the address of the first run.
        runs_dir: Folder of the runs.

    Returns:
        The figures.
    """
    compared = asked_groups(runs or (), groups or (), runs_dir=runs_dir)
    page, file = compare_run_groups(compared, out=Path(out), num_items=items, mlflow_uri=mlflow_uri)
    text = markdown(page, file)
    show_page("comparison", text, about=page.title)
    return as_json(page, compared)

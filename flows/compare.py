"""The flow that compares runs, for deployments. It writes the page of `sightline compare`, and its figures to
Prefect."""

from pathlib import Path
from typing import Any

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows.comparing import asked_groups, compare_run_groups
from rl_core.run_directory import RUNS_DIR
from tasks.comparison.page import ComparisonPage
from tasks.comparison.record import as_json
from tasks.pages.artifacts import PAGES
from tasks.results.report_page import percent, points


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
        runs: Folders or names of runs.
        groups: Groups of runs, each `NAME=RUN,RUN`.
        out: The page to write; the figures are written beside it as JSON.
        items: How many flipped items to show for each group.
        mlflow_uri: Address of the MLflow to show it in; by default the address of the first run.
        runs_dir: Folder of the runs.

    Returns:
        The figures.
    """
    compared = asked_groups(runs or (), groups or (), runs_dir=runs_dir)
    page = compare_run_groups(compared, out=Path(out), num_items=items, mlflow_uri=mlflow_uri)
    text = markdown(page, Path(out))
    PAGES.write(lambda: create_markdown_artifact(key="comparison", markdown=text, description=page.title))
    return as_json(page, compared)


def markdown(page: ComparisonPage, out: Path) -> str:
    """The figures as a Markdown page."""
    rows = {row.place: row for row in page.comparisons}
    lines = [
        f"# {page.title}",
        "",
        "| group | seeds | accuracy | 95 % over items | difference, points | p over items | p over seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for place, group in enumerate(page.groups):
        row, accuracy = rows.get(place), group.accuracy
        cells = [group.label, ", ".join(map(str, group.seeds))]
        cells += [percent(accuracy.mean), " to ".join(map(percent, accuracy.ci95))] if accuracy else ["", ""]
        cells += [points(row.comparison.difference), f"{row.p_items:.3g}"] if row else ["", ""]
        cells += [f"{row.p_seeds:.3g}" if row and row.p_seeds is not None else ""]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    sentences = [*(row.conclusion for row in page.comparisons), *page.remarks, f"The page: `{out.absolute()}`"]
    return "\n".join([*lines, "", *(f"- {sentence}" for sentence in sentences), ""])

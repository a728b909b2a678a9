"""Records a comparison, or a group of seeds alone: a self-contained page, its figures as JSON, and both in MLflow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_core.config.run import RunConfig
from rl_core.digests import digest_of
from rl_core.files import atomic_write_json, atomic_write_text, numbered, read_json
from rl_core.redaction import redact
from rl_core.run_directory import RunDirectory
from tasks.comparison.data import comparison_page
from tasks.comparison.groups import RunGroup, group_runs
from tasks.comparison.page import COLUMNS, ComparisonPage, ComparisonRow, GroupRow, render_comparison
from tasks.results.report_page import markdown_table
from tasks.tracking.run_tracking import page_run

if TYPE_CHECKING:
    from rl_core.tracking.mlflow_runs import MlflowRun

EXPERIMENT = "comparisons"
"""MLflow experiment of the comparisons, whatever experiments their runs belong to."""


def own_page(groups: Sequence[RunGroup], out: Path) -> Path:
    """The file for the page of a comparison: `out`, or the first of `NAME-2`, `NAME-3`, ... that holds no page of other
    groups."""
    names = [[run.run.name for run in group.runs] for group in groups]
    return next(
        page for page in numbered(out, out.suffix) if not page.exists() or _compared(page.with_suffix(".json")) == names
    )


def _compared(figures: Path) -> list[list[str]] | None:
    """The runs of each group of a comparison that was written; None where it is none."""
    try:
        return [group["runs"] for group in read_json(figures)["groups"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_comparison(groups: Sequence[RunGroup], out: Path, *, num_items: int) -> ComparisonPage:
    """Write the page to `out`, and its figures beside it with the ending `.json`. Raises ValueError where there are
    more groups than a chart has colours, or no mode in which all runs were evaluated. Raises OSError where a file
    cannot be written."""
    page = comparison_page(groups, num_items=num_items)
    out.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(out, redact(render_comparison(page)))
    atomic_write_json(out.with_suffix(".json"), as_json(page, groups))
    return page


def show_comparison(page: ComparisonPage, groups: Sequence[RunGroup], out: Path, *, mlflow_uri: str) -> None:
    """Show a comparison in MLflow, where it replaces an earlier one of the same runs. An outage is a warning."""
    from rl_core.tracking.tracker import tolerated_outage

    names = [sorted(run.run.name for run in group.runs) for group in groups]
    identity = f"comparison-{digest_of(names)}"
    mlflow_run = page_run(mlflow_uri, EXPERIMENT, name=page.title, run=identity, stage="comparison")
    tags = {f"group.{group.label}": ", ".join(run.run.name for run in group.runs) for group in groups}
    tags |= {f"verdict.{row.label}": row.conclusion for row in page.comparisons}
    with tolerated_outage("the comparison"):
        mlflow_run.show_page(out, tags=tags, metrics=headline_metrics(page))


def as_json(page: ComparisonPage, groups: Sequence[RunGroup]) -> dict[str, Any]:
    """The figures for scripts."""
    return {
        "mode": page.mode,
        "groups": [_group_json(row, group) for row, group in zip(page.groups, groups, strict=True)],
        "runs": [
            {"run": row.name, "seed": row.seed, "base": row.base, "trained": row.accuracy and row.accuracy.accuracy}
            for row in page.runs
        ],
        "comparisons": [_comparison_json(row) for row in page.comparisons],
        "differing": {key: list(values) for key, values in page.differing.items()},
        "remarks": list(page.remarks),
    }


def _group_json(row: GroupRow, group: RunGroup) -> dict[str, Any]:
    accuracy = row.accuracy
    return {
        "label": row.label,
        "runs": [run.run.name for run in group.runs],
        "seeds": list(row.seeds),
        "base_accuracy": row.base,
        "accuracy": accuracy and accuracy.mean,
        "ci95": accuracy and list(accuracy.ci95),
        "accuracy_by_seed": accuracy and list(accuracy.by_seed),
        "sd_over_seeds": accuracy and accuracy.sd,
        "ci95_over_seeds": accuracy and accuracy.over_seeds and list(accuracy.over_seeds),
        "over_seeds": row.over_seeds,
        "stragglers": [asdict(straggler) for straggler in row.stragglers],
    }


def _comparison_json(row: ComparisonRow) -> dict[str, Any]:
    found = row.comparison
    seeds = found.over_seeds
    return {
        "label": row.label,
        "reference": row.reference,
        "items": found.n,
        "difference": found.difference,
        "over_items": {"ci95": list(found.ci95), "p_value": row.p_items},
        "over_seeds": None if seeds is None else {"ci95": list(seeds.ci95), "p_value": row.p_seeds},
        "verdict": row.conclusion,
        "flipped": dict(found.flipped),
    }


def headline_metrics(page: ComparisonPage) -> Mapping[str, float]:
    """The metrics in MLflow: accuracy of each group, difference and p-values of each comparison."""
    metrics = {f"accuracy/{row.label}": row.accuracy.mean for row in page.groups if row.accuracy is not None}
    for row in page.comparisons:
        metrics[f"difference/{row.label}"] = row.comparison.difference
        metrics[f"p_items/{row.label}"] = row.p_items
        if row.p_seeds is not None:
            metrics[f"p_seeds/{row.label}"] = row.p_seeds
    return metrics


def markdown(page: ComparisonPage, out: Path) -> str:
    """The figures as a Markdown page."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in page.cells()]
    behind = [
        f"{group.label}, seed {straggler.seed} stayed behind: {straggler.cause}"
        for group in page.groups
        for straggler in group.stragglers
    ]
    conclusions = (row.conclusion for row in page.comparisons)
    sentences = [*conclusions, *behind, *page.remarks, f"The page: `{out.absolute()}`"]
    table = markdown_table(COLUMNS, rows)
    return "\n".join([f"# {page.title}", "", table, *(f"- {sentence}" for sentence in sentences), ""])


STAGE = "seeds"
"""Value of STAGE_TAG for a group's run in MLflow."""


def conclude_seeds(
    label: str, runs: Sequence[RunDirectory], failures: Mapping[int, str], out: Path
) -> tuple[ComparisonPage, dict[str, Any]]:
    """Write the page of a group of seeds to `out`, with its figures beside it as `.json`; returns both."""
    (finished,) = group_runs([], {label: runs})
    groups = [replace(finished, failures=failures)]
    page = write_comparison(groups, out, num_items=0)
    return page, as_json(page, groups)


class GroupTracking:
    """A group's run in MLflow, in the experiment of its members; nothing where `tracking.mlflow_uri` is null. An outage
    is a warning. `config` is that of the members, whatever its seed."""

    def __init__(self, config: RunConfig, name: str) -> None:
        self._config = config
        self._name = name
        self._address = config.tracking.mlflow_address

    def take(self, run: RunDirectory) -> None:
        """Make the run of a member, which is about to start, a child of the group's run."""

        def show(address: str, group: "MlflowRun") -> None:
            group.set_status("RUNNING")
            self._member(address, run).set_tags({"mlflow.parentRunId": group.run_id})

        self._tried(f"{run.name} in {self._name}", show)

    def show(self, page: ComparisonPage, out: Path) -> None:
        """Show the page of a concluded group, which is in the file `out`."""
        row = page.groups[0]
        tags = {"seeds": ", ".join(map(str, row.seeds)), "sightline.folder": str(out.parent.absolute())}
        self._tried(
            f"the group {self._name}",
            lambda _, group: group.show_page(out, tags=tags, metrics=_group_metrics(row), status="FINISHED"),
        )

    def fail(self, failed: Sequence[RunDirectory]) -> None:
        """Show that the group failed, and with it these members, whose processes may have ended before they could."""

        def show(address: str, group: "MlflowRun") -> None:
            for run in failed:
                self._member(address, run).set_status("FAILED")
            group.set_status("FAILED")

        self._tried(f"the group {self._name}", show)

    def _tried(self, what: str, show: Callable[[str, "MlflowRun"], None]) -> None:
        if self._address is None:
            return
        from rl_core.tracking.tracker import tolerated_outage

        with tolerated_outage(what):
            experiment, name = self._config.experiment, self._name
            show(self._address, page_run(self._address, experiment, name=name, run=name, stage=STAGE))

    def _member(self, address: str, run: RunDirectory) -> "MlflowRun":
        from rl_core.tracking.mlflow_runs import MlflowPipeline

        return MlflowPipeline(address, experiment=self._config.experiment, run_name=run.name).parent


def _group_metrics(group: GroupRow) -> dict[str, float]:
    """The metrics of a group's run in MLflow: means before and after, and for several seeds the standard deviation and
    the 95 % interval over seeds."""
    assert group.accuracy is not None and group.base is not None, "a concluded group has a finished run"
    found = group.accuracy
    metrics = {
        "accuracy/base": group.base,
        "accuracy/trained": found.mean,
        "accuracy/lowest": min(found.by_seed),
        "accuracy/highest": max(found.by_seed),
        "seeds/finished": float(len(found.by_seed)),
        "seeds/stayed_behind": float(len(group.stragglers)),
    }
    if found.sd is None or found.over_seeds is None:
        return metrics
    low, high = found.over_seeds
    return metrics | {"accuracy/sd": found.sd, "accuracy/ci95_low": low, "accuracy/ci95_high": high}

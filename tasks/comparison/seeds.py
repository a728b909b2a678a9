"""Concludes a group of seeds: the comparison's page with this group alone, and a run in MLflow that has the seeds' runs
as its children."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_core.config.run import RunConfig
from rl_core.run_directory import RunDirectory
from tasks.comparison.groups import group_runs
from tasks.comparison.page import ComparisonPage, GroupRow
from tasks.comparison.record import as_json, write_comparison
from tasks.tracking.run_tracking import page_run

if TYPE_CHECKING:
    from rl_core.tracking.mlflow_runs import MlflowRun

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

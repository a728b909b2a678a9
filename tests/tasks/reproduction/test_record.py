"""The seeds of a baseline have one run in MLflow, with the seeds' runs as its children."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from tasks.reproduction.baseline_set import Member
from tasks.reproduction.record import conclude, seeds_tracking
from tests.tasks.baseline_runs import week_of_seeds

pytestmark = pytest.mark.usefixtures("at_the_root")


@pytest.fixture
def uri(new_database: Callable[[], str]) -> str:
    return new_database()


def concluded(folder: Path, uri: str, *, failure: str | None = None) -> tuple[Member, dict[str, Run]]:
    """A baseline with two seeds, and what MLflow has of it by its name; `failure` keeps both from a result."""
    member = week_of_seeds(folder / "runs", 1, {1: 290, 2: 294}, f"tracking.mlflow_uri={uri}")
    member = replace(member, failures=dict.fromkeys(member.runs, failure) if failure else {})
    for run in member.runs.values():
        seeds_tracking("weekly", member.name, member.config).take(run)
    conclude("weekly", [member], folder / "weekly" / "summary.html", command="")
    client = MlflowClient(tracking_uri=uri)
    found = client.search_runs([client.get_experiment_by_name(member.config.experiment).experiment_id])
    return member, {run.info.run_name: run for run in found}


def test_mlflow_has_the_seeds_as_children_of_one_run(tmp_path: Path, uri: str) -> None:
    member, runs = concluded(tmp_path, uri)
    parent = runs.pop(f"{member.name}-weekly")
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["accuracy/trained"] == pytest.approx(292 / 601)
    assert {run.data.tags["mlflow.parentRunId"] for run in runs.values()} == {parent.info.run_id}
    assert runs.keys() == {run.name for run in member.runs.values()}


def test_mlflow_shows_that_no_seed_has_an_accuracy(tmp_path: Path, uri: str) -> None:
    _, runs = concluded(tmp_path, uri, failure="it broke")
    assert len(runs) == 3 and {run.info.status for run in runs.values()} == {"FAILED"}

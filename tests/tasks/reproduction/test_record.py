"""The seeds of a baseline have one page, and one run in MLflow with the seeds' runs as its children."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tasks.reproduction.record import conclude, seeds_tracking
from tests.tasks.baseline_runs import UNPUBLISHED, week, week_of_seeds

pytestmark = pytest.mark.usefixtures("at_the_root")


def test_a_baseline_with_several_seeds_has_a_page_of_them(tmp_path: Path) -> None:
    several = replace(week_of_seeds(tmp_path / "runs", 1, {1: 290, 2: 294, 3: 0}), failures={3: "it broke"})
    one = week(tmp_path / "runs", 1, 290, name=UNPUBLISHED)
    conclude("weekly", [several, one], tmp_path / "weekly" / "summary.html", command="")
    names = sorted(path.name for path in (tmp_path / "weekly").iterdir())
    seeds = f"seeds-{several.name}"
    assert names == [f"{seeds}.html", f"{seeds}.json", "summary.html", "summary.json"]
    text = (tmp_path / "weekly" / f"{seeds}.html").read_text()
    assert "seed 3 stayed behind: its run did not finish: it broke" in text and "between seeds 48.3 to 48.9 %" in text


def test_mlflow_has_the_seeds_as_children_of_one_run(tmp_path: Path, new_database: Callable[[], str]) -> None:
    uri = new_database()
    member = week_of_seeds(tmp_path / "runs", 1, {1: 290, 2: 294}, f"tracking.mlflow_uri={uri}")
    for run in member.runs.values():
        seeds_tracking("weekly", member.name, member.config).take(run)
    conclude("weekly", [member], tmp_path / "weekly" / "summary.html", command="")
    client = MlflowClient(tracking_uri=uri)
    found = client.search_runs([client.get_experiment_by_name(member.config.experiment).experiment_id])
    by_name = {run.info.run_name: run for run in found}
    parent = by_name.pop(f"{member.name}-weekly")
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["accuracy/trained"] == pytest.approx(292 / 601)
    assert {run.data.tags["mlflow.parentRunId"] for run in by_name.values()} == {parent.info.run_id}
    assert by_name.keys() == {run.name for run in member.runs.values()}


def test_mlflow_shows_that_no_seed_has_an_accuracy(tmp_path: Path, new_database: Callable[[], str]) -> None:
    uri = new_database()
    member = week_of_seeds(tmp_path / "runs", 1, {1: 290, 2: 294}, f"tracking.mlflow_uri={uri}")
    member = replace(member, failures=dict.fromkeys(member.runs, "it broke"))
    for run in member.runs.values():
        seeds_tracking("weekly", member.name, member.config).take(run)
    conclude("weekly", [member], tmp_path / "weekly" / "summary.html", command="")
    client = MlflowClient(tracking_uri=uri)
    found = client.search_runs([client.get_experiment_by_name(member.config.experiment).experiment_id])
    assert len(found) == 3 and {run.info.status for run in found} == {"FAILED"}

"""A group of seeds has one page, and one run in MLflow with the seeds' runs as its children."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from tasks.comparison.record import GroupTracking, conclude_seeds
from tests.tasks.finished_run import config_with, finish_run


def test_page_and_figures_tell_the_seeds_apart(tmp_path: Path) -> None:
    runs = [
        finish_run(tmp_path, f"seed={seed}", base="----", trained=signs) for seed, signs in ((2, "++--"), (1, "+++-"))
    ]
    out = tmp_path / "seeds" / "group" / "summary.html"
    page, figures = conclude_seeds("group", runs, {3: "it broke"}, out)
    assert page.groups[0].over_seeds.startswith("mean 62.5 %, between seeds 50.0 to 75.0 %, 95 % over seeds 0.0 to")
    assert "seed 3 stayed behind: its run did not finish: it broke" in out.read_text()
    assert json.loads(out.with_suffix(".json").read_text()) == figures
    assert [(run["seed"], run["base"], run["trained"]) for run in figures["runs"]] == [(1, 0.0, 0.75), (2, 0.0, 0.5)]


def test_mlflow_has_the_group_with_its_members_as_children(new_database: Callable[[], str], tmp_path: Path) -> None:
    uri = new_database()
    runs = [finish_run(tmp_path, f"seed={seed}", trained=signs) for seed, signs in ((1, "++--"), (2, "+++-"))]
    broken = finish_run(tmp_path, "seed=3")
    out = tmp_path / "seeds" / "group" / "summary.html"
    page, _ = conclude_seeds("group", runs, {3: "it broke"}, out)
    config = config_with(f"tracking.mlflow_uri={uri}")
    for _ in range(2):  # killed and started again, it is the same group
        tracking = GroupTracking(config, "group")
        for run in (*runs, broken):
            tracking.take(run)
        tracking.show(page, out)
        tracking.fail([broken])
    client = MlflowClient(tracking_uri=uri)
    found = client.search_runs([client.get_experiment_by_name(config.experiment).experiment_id])
    by_name: dict[str, Run] = {run.info.run_name: run for run in found}
    assert len(found) == len(by_name) == 4
    group = by_name["group"]
    children = [by_name[run.name] for run in (*runs, broken)]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {group.info.run_id}
    assert (group.info.status, children[-1].info.status) == ("FAILED", "FAILED")
    metrics = group.data.metrics
    assert (metrics["accuracy/trained"], metrics["accuracy/lowest"], metrics["accuracy/sd"]) == pytest.approx(
        (0.625, 0.5, 0.1768), abs=1e-4
    )
    assert metrics["seeds/stayed_behind"] == 2
    assert len(client.get_metric_history(group.info.run_id, "accuracy/trained")) == 1


def test_without_mlflow_nothing_is_sent(tmp_path: Path) -> None:
    tracking = GroupTracking(config_with("tracking.mlflow_uri=null"), "group")
    tracking.take(finish_run(tmp_path))

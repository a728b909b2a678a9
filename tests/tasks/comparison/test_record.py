"""A comparison is a page with its figures beside it, and the same in MLflow."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tasks.comparison.groups import RunGroup, group_runs
from tasks.comparison.record import EXPERIMENT, show_comparison, write_comparison
from tests.tasks.finished_run import finish_run


@pytest.fixture
def groups(tmp_path: Path) -> list[RunGroup]:
    runs = [finish_run(tmp_path / "runs", f"rollout.n={n}", trained=signs) for n, signs in ((4, "+--"), (8, "++-"))]
    return group_runs(runs)


def test_page_and_figures_lie_side_by_side(groups: list[RunGroup], tmp_path: Path) -> None:
    out = tmp_path / "new" / "page.html"
    page = write_comparison(groups, out, num_items=3)
    assert out.read_text().startswith("<!doctype html>")
    figures = json.loads((tmp_path / "new" / "page.json").read_text())
    assert [group["label"] for group in figures["groups"]] == ["4", "8"]
    assert figures["comparisons"][0]["difference"] == page.comparisons[0].comparison.difference


def test_mlflow_has_each_comparison_once(
    groups: list[RunGroup], new_database: Callable[[], str], tmp_path: Path
) -> None:
    out, uri = tmp_path / "page.html", new_database()
    for shown in (groups, groups, groups[::-1]):
        page = write_comparison(shown, out, num_items=3)
        show_comparison(page, shown, out, mlflow_uri=uri)
    client = MlflowClient(tracking_uri=uri)
    found = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    runs = {run.info.run_name: run for run in found}
    assert runs.keys() == {"4 vs 8", "8 vs 4"} and len(found) == 2
    run = runs["4 vs 8"]
    assert run.info.status == "FINISHED"
    assert run.data.metrics["difference/8"] == pytest.approx(1 / 3)
    assert len(client.get_metric_history(run.info.run_id, "difference/8")) == 1
    assert run.data.tags["group.8"] == groups[1].runs[0].run.name
    assert "do not differ significantly" in run.data.tags["verdict.8"]
    assert {file.path for file in client.list_artifacts(run.info.run_id)} == {"page.html", "page.json"}


def test_an_outage_is_a_warning(groups: list[RunGroup], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "folder.db").mkdir()
    page = write_comparison(groups, tmp_path / "page.html", num_items=3)
    show_comparison(page, groups, tmp_path / "page.html", mlflow_uri=f"sqlite:///{tmp_path}/folder.db")
    assert "the comparison: not sent" in caplog.text

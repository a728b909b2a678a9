"""The view of an experiment's runs is one that the installed MLflow's pages know."""

import json
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from rl_core.tracking import mlflow_view
from rl_core.tracking.mlflow_runs import MlflowPipeline

PAGES = Path(mlflow.__file__).parent / "server" / "js" / "build" / "static" / "js"


@pytest.fixture
def pipeline(new_database: Callable[[], str]) -> MlflowPipeline:
    return MlflowPipeline(new_database(), experiment="counting", run_name="counting-abc")


def view_of(pipeline: MlflowPipeline) -> dict:
    client = MlflowClient(pipeline.access.uri)
    return json.loads(client.get_experiment_by_name("counting").tags[mlflow_view.TAG])


def test_the_view_finds_the_pipelines_and_shows_what_they_have(pipeline: MlflowPipeline) -> None:
    tags = {"algorithm": "grpo", "model": "tiny", "seed": "1"}
    pipeline.parent.set_tags(tags)
    pipeline.parent.log_metrics({"accuracy/base": 0.25, "accuracy/trained": 0.75})
    pipeline.stage("train").log_metrics({"reward/overall": 0.5})
    pipeline.offer_view()
    state = json.loads(view_of(pipeline)["state"])
    client = MlflowClient(pipeline.access.uri)
    experiment = client.get_experiment_by_name("counting").experiment_id
    (found,) = client.search_runs([experiment], state["searchFilter"], order_by=[f"{state['orderByKey']} DESC"])
    data = {"metrics": found.data.metrics, "tags": found.data.tags}
    for column in state["selectedColumns"]:
        kind, _, name = column.partition(".")
        assert name.strip("`") in data[kind], column
    assert pipeline.view_address == (
        f"http://127.0.0.1:5000/#/experiments/{experiment}/runs?viewStateShareKey=sightline&compareRunsMode=TABLE"
    )


def test_a_view_that_somebody_has_changed_stays(pipeline: MlflowPipeline) -> None:
    pipeline.offer_view()
    changed = json.dumps(view_of(pipeline) | {"name": "mine"})
    client = MlflowClient(pipeline.access.uri)
    client.set_experiment_tag(client.get_experiment_by_name("counting").experiment_id, mlflow_view.TAG, changed)
    pipeline.offer_view()
    assert view_of(pipeline)["name"] == "mine"


def test_the_installed_pages_know_such_a_view(pipeline: MlflowPipeline) -> None:
    """They are no interface: a new version of MLflow may keep its views otherwise, and the link would open none."""
    pipeline.offer_view()
    bundles = "".join(path.read_text(encoding="utf-8", errors="replace") for path in sorted(PAGES.glob("*.js")))
    view = view_of(pipeline)
    words = {*view, *json.loads(view["state"]), mlflow_view.TAG.removesuffix("sightline")}
    words |= {part.partition("=")[0] for part in mlflow_view.QUERY.split("&")}
    assert [word for word in words if word not in bundles] == []

"""The registry has a version a run, and its alias moves for significant improvements only."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion

from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import read_manifest
from tasks.evaluate import show_evaluation
from tasks.tracking.registration import DECISION, register_model
from tasks.tracking.run_tracking import PipelineTracking
from tests.servers import free_port, mlflow_server
from tests.tasks.finished_run import config_with, finish_run

BASE = "+---------" * 4
BETTER = "+++++-----" * 4
A_LITTLE_BETTER = "++++++----" * 4
BEST = "+++++++++-" * 4


@pytest.fixture
def uri(new_database: Callable[[], str]) -> str:
    return new_database()


def registered(uri: str, runs_dir: Path, seed: int, trained: str, *overrides: str, again: bool = False) -> RunDirectory:
    """Finish a run and show it in MLflow, its registration last, as the flow does."""
    overrides = (f"seed={seed}", *overrides)
    config = config_with(*overrides, f"tracking.mlflow_uri={uri}")
    run = finish_run(runs_dir, *overrides, base=BASE, trained=trained, weights=f"weights {seed}")
    for _ in range(2 if again else 1):
        tracking = PipelineTracking(config, run, log_event=lambda kind, **facts: pytest.fail(f"{kind} {facts}"))
        with tracking.pipeline_running(None, resume="sightline run --resume counting-abc"):
            manifest = read_manifest(run, "evaluate-trained")
            tracking.show("evaluate-trained", manifest, show_evaluation)
            register_model(tracking, run)
    return run


def champion(uri: str) -> ModelVersion:
    return MlflowClient(tracking_uri=uri).get_model_version_by_alias("counting", "champion")


def version_of(uri: str, run: RunDirectory) -> ModelVersion:
    found = MlflowClient(tracking_uri=uri).search_model_versions("name = 'counting'")
    (version,) = [version for version in found if version.tags["sightline.run"] == run.name]
    return version


def test_a_version_says_where_the_weights_are_and_how_good_they_are(uri: str, tmp_path: Path) -> None:
    run = registered(uri, tmp_path / "runs", 1, BETTER, again=True)
    version = version_of(uri, run)
    assert version.source == run.merged_model.as_uri()
    assert version.tags["greedy/base/accuracy"] == "0.1000"
    assert version.tags["greedy/trained/accuracy"] == "0.5000"
    assert version.tags["greedy/trained/items"] == "40"
    assert {"model", "algorithm", "dataset", "recipe", "seed", "protocol"} <= version.tags.keys()
    assert "10.0% → **50.0%**" in version.description
    source = MlflowClient(tracking_uri=uri).get_run(version.run_id)
    assert source.data.tags["sightline.run"] == run.name


def test_the_first_champion_must_be_better_than_its_base_model(uri: str, tmp_path: Path) -> None:
    equal = registered(uri, tmp_path / "runs", 1, BASE)
    decision = version_of(uri, equal).tags[DECISION]
    assert decision.startswith("not champion: not significantly more right answers than its base model")
    assert MlflowClient(tracking_uri=uri).get_registered_model("counting").aliases == {}
    better = registered(uri, tmp_path / "runs", 2, BETTER)
    assert champion(uri).tags["sightline.run"] == better.name


def test_the_alias_moves_only_for_a_significant_improvement(uri: str, tmp_path: Path) -> None:
    first = registered(uri, tmp_path / "runs", 1, BETTER)
    second = registered(uri, tmp_path / "runs", 2, A_LITTLE_BETTER)
    assert champion(uri).tags["sightline.run"] == first.name
    tags = version_of(uri, second).tags
    assert tags[DECISION] == (
        "not champion: not significantly more right answers than version 1: 4 answers gained, 0 lost of 40, "
        "McNemar p = 0.125"
    )
    assert (tags["champion.difference"], tags["champion.p_value"]) == ("+0.1000", "0.125")
    third = registered(uri, tmp_path / "runs", 3, BEST)
    assert champion(uri).tags["sightline.run"] == third.name
    registered(uri, tmp_path / "runs", 4, BETTER)  # significantly worse
    assert champion(uri).tags["sightline.run"] == third.name


@pytest.mark.parametrize(
    ("overrides", "items", "reason"),
    [
        (["evaluation.limit=40"], BEST, "measured by another protocol"),
        ([], BEST + "+", "the items differ: 40 and 41"),
    ],
)
def test_a_model_that_cannot_be_compared_becomes_no_champion(
    uri: str, tmp_path: Path, overrides: list[str], items: str, reason: str
) -> None:
    first = registered(uri, tmp_path / "runs", 1, BETTER)
    second = registered(uri, tmp_path / "runs", 2, items, *overrides)
    assert champion(uri).tags["sightline.run"] == first.name
    assert reason in version_of(uri, second).tags[DECISION]


def test_an_outage_is_made_up_for_by_the_next_call(uri: str, tmp_path: Path) -> None:
    database = Path(uri.removeprefix("sqlite:///"))
    database.rename(tmp_path / "away.db")
    database.mkdir()
    events = []
    run = finish_run(tmp_path / "runs", base=BASE, trained=BETTER)
    config = config_with(f"tracking.mlflow_uri={uri}")
    register_model(PipelineTracking(config, run, log_event=lambda kind, **facts: events.append(facts["what"])), run)
    assert events == ["the registered model"]
    database.rmdir()
    (tmp_path / "away.db").rename(database)
    register_model(PipelineTracking(config, run, log_event=lambda kind, **facts: pytest.fail(kind)), run)
    assert champion(uri).tags["sightline.run"] == run.name


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A real MLflow server, which refuses local paths as sources."""
    port = free_port()
    with mlflow_server(tmp_path, port):
        yield f"http://127.0.0.1:{port}"


@pytest.mark.slow
def test_a_server_gets_the_place_of_the_weights(server: str, tmp_path: Path) -> None:
    run = registered(server, tmp_path / "runs", 1, BETTER)
    better = registered(server, tmp_path / "runs", 2, BEST)
    version = version_of(server, run)
    assert version.source == f"runs:/{version.run_id}/merged"
    client = MlflowClient(tracking_uri=server)
    location = Path(client.download_artifacts(version.run_id, "merged/location.json", str(tmp_path))).read_text()
    assert run.merged_model.as_uri() in location and "model.safetensors" in location
    assert champion(server).tags["sightline.run"] == better.name

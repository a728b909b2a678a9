"""A run's steps reach every tracker that the config names, over epochs, attempts and failures."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from rl_core.run_directory import RunDirectory
from rl_core.tracking.tensorboard_tracker import TensorboardTracker
from tasks.cache.manifests import read_manifest
from tasks.tracking.run_tracking import PipelineTracking, log_split, run_tags
from tests.rl_core.tracking.runs import a_config, take_steps, validate
from tests.tasks.finished_run import config_with, finish_run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "counting-abc")


def train(run: RunDirectory, epochs: list[list[int]], **tracking: object) -> None:
    """What a flow does to its trackers, with steps that cost nothing."""
    shown = PipelineTracking(a_config(**tracking), run, log_event=lambda kind, **facts: pytest.fail(f"{kind} {facts}"))
    with shown.pipeline_running(None, resume="sightline run --resume counting-abc"):
        for steps in epochs:
            with shown.following() as follow:
                for step in steps:
                    take_steps(run, step)
                    follow()


def shown_steps(caplog: pytest.LogCaptureFixture) -> list[str]:
    """First lines of what the console showed."""
    records = [record for record in caplog.records if record.name == "rl_core.tracking.console_tracker"]
    return [record.getMessage().splitlines()[0] for record in records]


def test_every_tracker_has_every_step_after_two_attempts(
    run: RunDirectory, new_database: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    database = new_database()
    everywhere = {
        "mlflow_uri": database,
        "tensorboard": True,
        "wandb": {"mode": "offline"},
        "swanlab": True,
        "console": True,
    }
    with caplog.at_level(logging.INFO, logger="rl_core.tracking.console_tracker"):
        train(run, [[1, 2], [3]], **everywhere)
        train(run, [[4]], **everywhere)
    client = MlflowClient(tracking_uri=database)
    experiment = client.get_experiment_by_name("counting")
    (stage,) = [r for r in client.search_runs([experiment.experiment_id]) if r.info.run_name == "counting-abc train"]
    assert [m.step for m in client.get_metric_history(stage.info.run_id, "reward/overall")] == [1, 2, 3, 4]
    assert len(client.list_artifacts(stage.info.run_id, "generations")) == 4
    assert TensorboardTracker(run.tensorboard).last_step() == 4
    assert len(list(run.root.glob("wandb/offline-run-*/files/media/table/*.json"))) == 4
    (log,) = run.swanlab.glob("run-*/logs/2/*.log")
    assert [json.loads(line)["index"] for line in log.open()] == [1, 2, 3, 4]
    assert shown_steps(caplog) == [
        line for step in (1, 2, 3, 4) for line in [f"step {step}, a response"] * 3 + [f"step {step}"]
    ]


def test_pipelines_are_compared_by_named_curves_of_their_parents_which_begin_with_reward_and_accuracy(
    new_database: Callable[[], str], tmp_path: Path
) -> None:
    """Each step once, over attempts; MLflow's pages show charts in the order of the metrics' names."""
    database = new_database()
    runs = [RunDirectory(tmp_path / name) for name in ("counting-abc", "counting-def")]
    for run in runs:
        validate(run, 0)
        train(run, [[1, 2], [3]], mlflow_uri=database)
        train(run, [[4]], mlflow_uri=database)
    client = MlflowClient(tracking_uri=database)
    experiment = client.get_experiment_by_name("counting")
    found = client.search_runs([experiment.experiment_id], "tags.`sightline.stage` = 'pipeline'")
    assert {one.info.run_name for one in found} == {"counting-abc", "counting-def"}
    for parent in found:
        curves = sorted(parent.data.metrics)
        assert curves == ["Learning/1 reward", "Learning/2 accuracy held-out", "progress/step"]
        rewards = client.get_metric_history(parent.info.run_id, curves[0])
        assert [(point.step, point.value) for point in rewards] == [(step, step / 7) for step in (1, 2, 3, 4)]
        assert [point.step for point in client.get_metric_history(parent.info.run_id, curves[1])] == [0]
        assert "seed" in parent.data.params
    assert "params.`seed`" in json.loads(experiment.tags["mlflow.sharedViewState.sightline"])["selectedColumns"]


def test_the_description_says_how_to_continue_until_there_is_a_verdict(
    run: RunDirectory, new_database: Callable[[], str]
) -> None:
    database = new_database()
    train(run, [[1]], mlflow_uri=database)
    assert "`sightline run --resume counting-abc`" in note(database)
    shown = PipelineTracking(a_config(mlflow_uri=database), run, log_event=lambda kind, **facts: pytest.fail(kind))
    with shown.pipeline_running(None, resume="sightline run --resume counting-abc"):
        shown.conclude(["It rose.", "Look here."])
    assert note(database).splitlines()[:3] == ["It rose.", "", "Look here."]
    run.report.touch()
    train(run, [[2]], mlflow_uri=database)
    assert note(database).startswith("It rose."), "a finished run that is called again keeps its verdict"


def note(uri: str) -> str:
    return str(mlflow_runs(uri)["pipeline"].data.tags["mlflow.note.content"])


def test_generations_can_be_left_out(run: RunDirectory, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="rl_core.tracking.console_tracker"):
        train(run, [[1, 2]], console=True, generations_to_log=0)
    assert shown_steps(caplog) == ["step 1", "step 2"]


def test_steps_before_a_failure_are_shown(run: RunDirectory) -> None:
    shown = PipelineTracking(a_config(tensorboard=True), run, log_event=lambda kind, **facts: None)
    running, following = (
        shown.pipeline_running(None, resume="sightline run --resume counting-abc"),
        shown.following(),
    )
    with pytest.raises(RuntimeError, match="the device is lost"), running, following:  # noqa: PT012
        take_steps(run, 1, 2)
        raise RuntimeError("the device is lost")
    assert TensorboardTracker(run.tensorboard).last_step() == 2


def test_without_trackers_nothing_is_written_but_the_run(run: RunDirectory) -> None:
    train(run, [[1]])
    assert sorted(path.name for path in run.root.iterdir()) == ["metrics.jsonl", "rollouts"]


def mlflow_runs(uri: str, experiment: str = "counting") -> dict[str, Run]:
    """Stage -> its run."""
    client = MlflowClient(tracking_uri=uri)
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return {run.data.tags["sightline.stage"]: run for run in found}


def test_every_run_carries_the_tags_whether_its_stage_ran_or_was_recognised(
    new_database: Callable[[], str], tmp_path: Path
) -> None:
    uri = new_database()
    run = finish_run(tmp_path / "runs")
    config = config_with(f"tracking.mlflow_uri={uri}")
    shown = PipelineTracking(config, run, log_event=lambda kind, **facts: pytest.fail(f"{kind} {facts}"))
    with shown.pipeline_running(None, resume="sightline run --resume counting-abc"):
        with shown.stage_running("train"):
            pass
        manifest = read_manifest(run, "evaluate-trained")
        shown.show("evaluate-trained", manifest, lambda mlflow_run, manifest, run: None)
    runs = mlflow_runs(uri)
    assert runs.keys() == {"pipeline", "train", "evaluate-trained"}
    for one in runs.values():
        assert run_tags(config, run).items() <= one.data.tags.items()
    assert [stage for stage in runs if "code" in runs[stage].data.tags] == ["train", "pipeline"]


def test_a_split_is_an_input_once_however_often_it_is_shown(new_database: Callable[[], str], tmp_path: Path) -> None:
    uri = new_database()
    run = finish_run(tmp_path / "runs")
    shown = PipelineTracking(config_with(f"tracking.mlflow_uri={uri}"), run, log_event=lambda kind, **facts: None)
    for _ in range(2):
        shown.show_pipeline("the data", lambda pipeline: log_split(pipeline.parent, run, "train"))
        shown.show_pipeline("the data", lambda pipeline: log_split(pipeline.parent, run, "validation"))
    inputs = mlflow_runs(uri)["pipeline"].inputs.dataset_inputs
    found = {(entry.dataset.name, entry.dataset.digest, entry.tags[0].value) for entry in inputs}
    assert len(inputs) == 2
    assert found == {
        ("train (counting)", "f" * 16, "training"),
        ("validation (counting)", "f" * 16, "evaluation"),
    }


def test_no_secret_reaches_mlflow_or_the_log(
    run: RunDirectory,
    new_database: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", "key-0123456789")
    uri = new_database()
    config = config_with(f"tracking.mlflow_uri={uri}", "reward.kwargs.note=with key-0123456789")
    with PipelineTracking(config, run, log_event=lambda kind, **facts: pytest.fail(kind)).pipeline_running(
        None, resume="sightline run --resume counting-abc"
    ):
        pass
    assert mlflow_runs(uri)["pipeline"].data.params["reward.kwargs.note"] == "with [JUDGE_API_KEY]"
    assert b"key-0123456789" not in Path(uri.removeprefix("sqlite:///")).read_bytes()

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://weekly:wort-und-satz@127.0.0.1:9")
    events: list[object] = []
    shown = PipelineTracking(config, run, log_event=lambda kind, **facts: events.append(facts))
    with shown.pipeline_running(None, resume="sightline run --resume counting-abc"):
        pass
    assert "weekly:***@127.0.0.1:9" in caplog.text
    assert events and "wort-und-satz" not in f"{events}{caplog.text}"

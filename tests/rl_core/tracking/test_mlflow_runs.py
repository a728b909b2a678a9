"""MLflow shows a run, follows it through crashes and outages, and never stops it. SQLite and servers are real."""

import json
import math
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow import MlflowClient
from mlflow.utils.validation import _validate_metric
from PIL import Image

from rl_core.records.metrics_log import RunLogs, read
from rl_core.run_directory import RunDirectory
from rl_core.tracking.follower import TrackerFollower
from rl_core.tracking.mlflow_access import MlflowAccess, absolute_uri
from rl_core.tracking.mlflow_runs import MlflowPipeline, _key
from rl_core.tracking.mlflow_tracker import STEP_KEY, MlflowTracker
from rl_core.tracking.tracker import TrackerUnavailable, tolerated_outage
from tests.servers import free_port, mlflow_server


@pytest.fixture
def uri(new_database) -> str:
    return new_database()


@pytest.fixture
def client(uri) -> MlflowClient:
    return MlflowClient(tracking_uri=uri)


def open_pipeline(uri: str) -> MlflowPipeline:
    return MlflowPipeline(uri, experiment="quickstart", run_name="quickstart-abc", tags=lambda: {"config": "abc"})


def follow(uri: str, run: RunDirectory) -> None:
    TrackerFollower(MlflowTracker(open_pipeline(uri).stage("train")), run.metrics).finish()


def history(client: MlflowClient, run_id: str, key: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in client.get_metric_history(run_id, key)]


def test_a_pipeline_has_one_run_and_a_nested_one_a_stage_however_often_it_is_opened(uri, client):
    for _ in range(2):
        pipeline = open_pipeline(uri)
        with pipeline.running(pipeline.parent):
            for stage in ("prepare", "train"):
                with pipeline.running(pipeline.stage(stage)):
                    pass
    experiment = client.get_experiment_by_name("quickstart")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    children = ["quickstart-abc prepare", "quickstart-abc train"]
    assert sorted(runs) == ["quickstart-abc", *children]
    parent = runs["quickstart-abc"].info.run_id
    assert [runs[name].data.tags["mlflow.parentRunId"] for name in children] == [parent, parent]
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert {run.data.tags["config"] for run in runs.values()} == {"abc"}


def test_the_status_says_how_a_stage_ended_and_a_killed_one_is_taken_up_again(uri, client):
    pipeline = open_pipeline(uri)
    run = pipeline.stage("evaluate")
    seen = []

    def stage(error):
        with pipeline.running(run):
            seen.append(client.get_run(run.run_id).info.status)
            if error is not None:
                raise error

    for error, status in ((ValueError("bad row"), "FAILED"), (KeyboardInterrupt(), "KILLED")):
        with pytest.raises(type(error)):
            stage(error)
        assert client.get_run(run.run_id).info.status == status
    stage(None)
    assert client.get_run(run.run_id).info.status == "FINISHED"
    assert seen == ["RUNNING"] * 3


def test_metrics_of_a_run_that_was_killed_and_resumed_are_there_once(uri, client, run):
    logs = RunLogs(run)
    for step in range(6):
        logs.log_step(step, {"reward/overall": step / 7})
    follow(uri, run)
    logs.cut_back(3)
    for step in range(4, 9):
        logs.log_step(step, {"reward/overall": step / 7})
    follow(uri, run)
    train = open_pipeline(uri).stage("train").run_id
    assert history(client, train, "reward/overall") == [(step, step / 7) for step in range(9)]


def test_a_step_with_more_metrics_than_a_request_takes_arrives_whole(uri, client):
    stage = open_pipeline(uri).stage("train")
    tracker = MlflowTracker(stage)
    assert tracker.last_step() == -1
    tracker.log_step(3, {f"m{i}": i / 3 for i in range(2100)} | {"grad_norm": math.nan})
    metrics = client.get_run(stage.run_id).data.metrics
    assert len(metrics) == 2102
    assert metrics["m2099"] == 2099 / 3
    assert math.isnan(metrics["grad_norm"])
    assert MlflowTracker(open_pipeline(uri).stage("train")).last_step() == 3


def test_letters_of_any_script_are_kept_and_names_that_mlflow_refuses_stay_apart(uri, client):
    stage = open_pipeline(uri).stage("train")
    kept = {"reward/准确率": 0.1, "reward/格式分": 0.2, "reward/acc_1": 0.3, "reward/größe": 0.4}
    changed = {"reward/acc@1": 0.5, "reward/acc#1": 0.6, "k" * 300: 0.7, "k" * 301: 0.8, "../a//b": 0.9, "..": 1.0}
    MlflowTracker(stage).log_step(1, kept | changed)
    metrics = client.get_run(stage.run_id).data.metrics
    assert kept.items() <= metrics.items()
    assert sorted(metrics.values()) == sorted([*kept.values(), *changed.values(), metrics[STEP_KEY]])
    assert {name.rpartition("-")[0] for name, value in metrics.items() if value > 0.45 and name != STEP_KEY} == {
        "reward/acc_1",
        "k" * 243,
        "a/b",
        "",
    }


NAMES = st.text(max_size=300) | st.text("ab/. -0_é\u0301€", max_size=8)


@given(st.data())
def test_no_two_names_become_one_and_mlflow_takes_all(data):
    names = data.draw(st.sets(NAMES, min_size=1, max_size=5))
    names |= {_key(name) for name in data.draw(st.sets(st.sampled_from(sorted(names))))}
    keys = [_key(name) for name in names]
    assert len({*keys}) == len(names)
    for key in keys:
        _validate_metric(key, 1.0, 0, 0)


@given(st.text("aЖ和あé٣_", min_size=1, max_size=20))
def test_letters_and_digits_of_any_script_are_kept(name):
    assert _key(f"reward/{name}") == f"reward/{name}"


@pytest.mark.parametrize("with_server", [False, True])
def test_a_parameter_that_mlflow_refuses_does_not_lose_the_others(with_server, uri, tmp_path, caplog):
    """It refuses another value of one that it has, and a run may be lengthened."""
    port = free_port()
    with mlflow_server(tmp_path, port) if with_server else nullcontext():
        address = f"http://127.0.0.1:{port}" if with_server else uri
        parent = open_pipeline(address).parent
        parent.log_params({"trainer": {"max_steps": 40, "save_freq": 5}})
        later = {f"key_{number:03d}": number for number in range(230)}
        parent.log_params({"trainer": {"max_steps": 80, "save_freq": 2}, **later})
        params = MlflowClient(tracking_uri=address).get_run(parent.run_id).data.params
    assert params == {"trainer.max_steps": "40", "trainer.save_freq": "5"} | {k: f"{v}" for k, v in later.items()}
    assert "of the parameter(s) trainer.max_steps, trainer.save_freq" in caplog.text


def test_a_stage_shows_its_configuration_data_tables_images_and_files(uri, client, tmp_path, monkeypatch):
    """Everything twice: a stage that is run again shows the last state, not two."""
    report = tmp_path / "report.html"
    config = {
        "actor": {"optim": {"lr": 1e-6, "betas": [0.9, 0.99]}},
        "kl": None,
        "many": {str(i): i for i in range(150)},
    }
    for attempt in (1, 2):
        report.write_text(f"<html>{attempt}")
        stage = open_pipeline(uri).stage("evaluate")
        stage.log_params(config | {"prompt": "x" * 7000})
        stage.set_tags({"attempt": attempt, "long": "y" * 9000})
        stage.log_metrics({"accuracy": 0.9}, step=attempt)
        stage.log_dataset(name="counting", digest="f" * 64, source=tmp_path, context="evaluation", rows=400)
        stage.log_table("items.json", {"response": ["a", "b"], "correct": [True, False]})
        stage.log_image("samples/000.png", Image.new("RGB", (8, 8), (attempt, 0, 0)))
        stage.log_text("note.txt", str(attempt))
        stage.log_file(report)
    run = client.get_run(stage.run_id)
    assert run.data.params["actor.optim.lr"] == "1e-06"
    assert run.data.params["actor.optim.betas"] == "[0.9, 0.99]"
    assert run.data.params["kl"] == "null"
    assert len(run.data.params) == 154
    assert len(run.data.params["prompt"]) == 6000
    assert run.data.tags["attempt"] == "2"
    inputs = [(entry.dataset.name, entry.dataset.profile) for entry in run.inputs.dataset_inputs]
    assert inputs == [("counting", '{"num_rows": 400}')]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)  # load_table asks the global one
    table = client.load_table(run.info.experiment_id, "items.json", run_ids=[stage.run_id])
    assert table[["response", "correct"]].values.tolist() == [["a", True], ["b", False]]
    image = client.download_artifacts(stage.run_id, "samples/000.png", str(tmp_path))
    assert Image.open(image).getpixel((0, 0)) == (2, 0, 0)
    page = client.download_artifacts(stage.run_id, "report.html", str(tmp_path))
    assert Path(page).read_text() == "<html>2"
    assert stage.latest_metric("accuracy") == 0.9
    assert (stage.tag("attempt"), stage.tag("never set")) == ("2", None)


def test_a_relative_database_is_one_place_with_its_artifacts_in_the_same_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    access = MlflowAccess("sqlite:///mlflow.db")
    assert access.uri == f"sqlite:///{tmp_path}/mlflow.db"
    assert access.artifact_location("quickstart") == f"file://{tmp_path}/mlruns/quickstart"
    assert absolute_uri("http://127.0.0.1:5000") == "http://127.0.0.1:5000"
    assert MlflowAccess("http://127.0.0.1:5000").artifact_location("quickstart") is None


@pytest.mark.slow
def test_processes_that_open_a_new_database_at_the_same_time_all_get_it(tmp_path):
    open_it = (
        "import sys\n"
        "from rl_core.tracking.mlflow_access import MlflowAccess\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "MlflowAccess(sys.argv[1]).call(lambda client: client.create_experiment(sys.argv[2]))\n"
    )
    words = [sys.executable, "-c", open_it, f"sqlite:///{tmp_path}/new.db"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([*words, f"of {number}"], **pipes) for number in range(3)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.close()
    assert [process.wait() for process in processes] == [0, 0, 0]
    found = MlflowAccess(f"sqlite:///{tmp_path}/new.db").call(lambda client: client.search_experiments())
    assert {"of 0", "of 1", "of 2"} <= {experiment.name for experiment in found}


class SilentServer:
    """Takes connections and never answers, as a server behind a broken network does."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.uri = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def count_connections(self) -> int:
        """How many came since the last count."""
        self._listener.setblocking(False)
        count = 0
        with suppress(BlockingIOError):
            while True:
                self._listener.accept()[0].close()
                count += 1
        return count


@pytest.fixture
def silent_server() -> Iterator[SilentServer]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield SilentServer(listener)


def test_a_server_that_is_not_there_is_a_warning(run, caplog):
    logs = RunLogs(run)
    pipeline = open_pipeline(f"http://127.0.0.1:{free_port()}")
    stage = pipeline.stage("train")
    follower = TrackerFollower(MlflowTracker(stage), run.metrics, log_event=logs.log_event)
    with pipeline.running(stage, log_event=logs.log_event):
        for step in range(5):
            logs.log_step(step, {"loss": 1.0})
            follower.follow()
        with tolerated_outage("the configuration", logs.log_event):
            stage.log_params({"seed": 1})
        follower.finish()
    assert [event["kind"] for event in read(run.events)] == ["tracker-unavailable"] * 4
    assert "127.0.0.1" in caplog.text


def test_a_server_that_never_answers_is_asked_once_and_then_left_alone(run, silent_server, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    logs = RunLogs(run)
    moments = count()
    tracker = MlflowTracker(open_pipeline(silent_server.uri).stage("train"))
    # A clock that moves by one each time it is read: the request takes one moment, the pause after it ten.
    follower = TrackerFollower(tracker, run.metrics, log_event=logs.log_event, clock=lambda: float(next(moments)))
    logs.log_step(1, {"loss": 1.0})
    for _ in range(10):
        follower.follow()
    assert silent_server.count_connections() == 1
    (event,) = read(run.events)
    assert "read timeout=1" in event["reason"]
    follower.follow()
    assert silent_server.count_connections() == 1


def test_a_database_that_cannot_be_opened_is_an_outage_before_mlflow_tries_it_for_minutes(tmp_path, monkeypatch):
    def open_client(**options):
        pytest.fail(f"MLflow was asked: {options}")

    monkeypatch.setattr("rl_core.tracking.mlflow_access.MlflowClient", open_client)
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "torn.db").write_text("no database at all, though it has the length of a header" * 9)
    for name in ("folder.db", "torn.db", "torn.db/below.db"):
        with pytest.raises(TrackerUnavailable, match=name):
            _ = open_pipeline(f"sqlite:///{tmp_path}/{name}").parent.run_id


def test_generations_of_a_long_run_all_become_artifacts_and_the_pages_show_the_newest(uri, client, monkeypatch):
    """MLflow keeps the list of tables in a tag, whose length it bounds."""
    monkeypatch.setattr("rl_core.tracking.mlflow_runs.MAX_TAG_LENGTH", 300)
    stage = open_pipeline(uri).stage("train")
    tracker = MlflowTracker(stage)
    for step in (*range(1, 13), 12):
        tracker.log_generations(step, "generations", {"prompt": ["How many?"], "response": [f"{step}"]})
    assert len(client.list_artifacts(stage.run_id, "generations")) == 12
    tag = client.get_run(stage.run_id).data.tags["mlflow.loggedArtifacts"]
    assert len(tag) <= 300
    names = [entry["path"] for entry in json.loads(tag)]
    assert names == [f"generations/step-{step:06d}.json" for step in range(13 - len(names), 13)]
    assert len(names) > 3

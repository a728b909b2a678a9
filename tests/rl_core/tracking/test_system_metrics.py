"""The trackers' system metrics are what the workers used in a step."""

from mlflow import MlflowClient

from rl_core.records.metrics_log import RunLogs
from rl_core.tracking.follower import TrackerFollower
from rl_core.tracking.mlflow_runs import MlflowPipeline
from rl_core.tracking.mlflow_tracker import MlflowTracker, system_metrics
from rl_core.tracking.tracker import STEP_KEY

COLUMNS = {
    "host": ["a", "b"],
    "device": ["CPU", "CPU"],
    "idle_s": [1.0, 3.0],
    "total_s": [4.0, 4.0],
    "save_peak_gib": [None, 1.5],
}


def test_every_number_of_every_worker_has_a_name():
    assert system_metrics({"step": 1, "total_s": 4.0, "workers": COLUMNS}) == {
        "system/worker_0/idle_s": 1.0,
        "system/worker_1/idle_s": 3.0,
        "system/worker_0/total_s": 4.0,
        "system/worker_1/total_s": 4.0,
        "system/worker_1/save_peak_gib": 1.5,
        "system/worker_0/busy_share": 0.75,
        "system/worker_1/busy_share": 0.25,
    }


def test_mlflow_gets_them_with_each_step(run, new_database):
    uri = new_database()
    stage = MlflowPipeline(uri, experiment="quickstart", run_name="quickstart-abc").stage("train")
    logs = RunLogs(run)
    logs.log_step(0, {"val/accuracy": 0.5})
    follower = TrackerFollower(MlflowTracker(stage, timings=run.timings), run.metrics)
    for step in (1, 2, 3):
        logs.log_timing(step, {"total_s": 4.0}, workers={**COLUMNS, "idle_s": [0.0, float(step)]})
        logs.log_step(step, {"reward/overall": 0.5})
        if step != 2:
            follower.follow()
    follower.finish()
    history = MlflowClient(tracking_uri=uri).get_metric_history
    found = [(metric.step, metric.value) for metric in history(stage.run_id, "system/worker_1/busy_share")]
    assert found == [(1, 0.75), (2, 0.5), (3, 0.25)]
    assert [metric.step for metric in history(stage.run_id, STEP_KEY)] == [0, 1, 2, 3]

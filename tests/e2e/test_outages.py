"""A run that is killed, and loses the servers of Prefect and MLflow in the middle of training, ends with the results of
one that met nothing, and what the servers are missing is sent by the next call."""

import os
import signal
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from tests.e2e.planted_secrets import PASSWORD, leaks
from tests.e2e.processes import flow_run_states, has_recorded, prefect_server, run_of
from tests.e2e.runs import SMALL, fingerprint, run_arguments, sightline
from tests.results import differences
from tests.servers import free_port, mlflow_server, started, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


def mlflow_runs(client: MlflowClient) -> dict[str, Run]:
    """Stage -> its run."""
    found = client.search_runs([client.get_experiment_by_name("small").experiment_id])
    assert len({run.data.tags["sightline.stage"] for run in found}) == len(found)
    return {run.data.tags["sightline.stage"]: run for run in found}


def test_a_run_that_is_killed_and_loses_its_servers_ends_as_an_unbroken_one(
    finished: RunDirectory, new_home: Path
) -> None:
    port, prefect_port, output_file = free_port(), free_port(), new_home / "output.txt"
    mlflow_uri = f"tracking.mlflow_uri=http://127.0.0.1:{port}"
    arguments, run = run_of(new_home, mlflow_uri)
    with (
        mlflow_server(new_home, port) as mlflow,
        prefect_server(new_home, new_home / "server.txt", port=prefect_port) as (prefect, variables),
    ):
        variables |= {"MLFLOW_TRACKING_URI": f"http://weekly:{PASSWORD}@127.0.0.1:{port}"}
        with started(arguments, variables, output_file) as killed:
            wait_until(lambda: has_recorded(run, 3) or killed.poll() is not None, "step 3 is recorded")
            killed.kill()
        with started(arguments, variables, output_file) as process:
            wait_until(lambda: has_recorded(run, 5) or process.poll() is not None, "step 5 is recorded")
            for server in (mlflow, prefect):
                os.killpg(server.pid, signal.SIGKILL)
            is_over = lambda: "report: finished" in run.log.read_text()  # noqa: E731
            wait_until(lambda: is_over() or process.poll() is not None, "the report is written")
            # Prefect's own attempts to send its last events would take minutes.
            assert process.wait(timeout=60) == 0, output_file.read_text()
    assert '"kind":"reward_failed"' not in run.events.read_text()
    assert differences(fingerprint(finished), fingerprint(run)) == []
    output = output_file.read_text()
    assert "training continues after step" in output
    assert "Prefect's server went away" in output
    assert "Held-out accuracy" in output
    assert "tracker-unavailable" in {event["kind"] for event in read(run.events)}
    assert "weekly:***@127.0.0.1" in run.log.read_text()
    assert leaks(new_home) == []

    with prefect_server(new_home, new_home / "server.txt", port=prefect_port):
        wait_until(lambda: flow_run_states(new_home, run)[-1] == "Completed", "Prefect's server hears of the end")
    with mlflow_server(new_home, port):
        again = sightline(*run_arguments(new_home, SMALL, mlflow_uri), home=new_home).stdout
        client = MlflowClient(tracking_uri=f"http://127.0.0.1:{port}")
        runs = mlflow_runs(client)
        history = client.get_metric_history(runs["train"].info.run_id, "reward/overall")
        (version,) = client.search_model_versions("name = 'small'")
    stages = [line for line in again.splitlines() if line.startswith("✓")]
    assert stages and all("finished before" in line for line in stages), again
    written = [(record["step"], record["reward/overall"]) for record in read(run.metrics) if "reward/overall" in record]
    assert [(point.step, point.value) for point in history] == written
    made = {path.stem for path in run.stage_manifest("any").parent.glob("*.json")}
    assert {stage for stage in made if not stage.startswith("train")} | {"train", "pipeline"} == runs.keys()
    assert {stage.info.status for stage in runs.values()} == {"FINISHED"}
    assert version.tags["sightline.run"] == run.name
    assert version.tags["champion.decision"]
    assert flow_run_states(new_home, run)[-3:] == ["Crashed", "Completed", "Completed"]

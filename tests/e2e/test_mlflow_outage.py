"""An MLflow server that goes away in the middle of training costs nothing: the run ends as it would have, and what is
missing is sent by the next call."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from rl_core.run_directory import RunDirectory
from rl_core.tracking.metrics_log import read
from tests.e2e.processes import answers, free_port
from tests.e2e.runs import (
    REPOSITORY,
    SMALL,
    command,
    differences,
    environment,
    fingerprint,
    run_arguments,
    sightline,
    the_run,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@contextmanager
def mlflow_server(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server on a database and artifacts of its own below `folder`; killed at the end of the block."""
    arguments = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", f"{port}", "--workers", "1"]
    arguments += ["--backend-store-uri", f"sqlite:///{folder}/server.db"]
    arguments += ["--artifacts-destination", str(folder / "artifacts")]
    variables = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.txt").open("ab") as said:
        process = subprocess.Popen(arguments, env=variables, stdout=said, stderr=said, process_group=0)
    try:
        until = time.monotonic() + 120
        while not answers(f"http://127.0.0.1:{port}/health"):
            assert process.poll() is None and time.monotonic() < until, (folder / "server.txt").read_text()
            time.sleep(0.1)
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """The server with its worker."""
    if process.poll() is None:
        os.killpg(process.pid, 9)
    process.wait()


def mlflow_runs(client: MlflowClient) -> dict[str, Run]:
    """Stage -> its run."""
    found = client.search_runs([client.get_experiment_by_name("small").experiment_id])
    assert len({run.data.tags["sightline.stage"] for run in found}) == len(found)
    return {run.data.tags["sightline.stage"]: run for run in found}


def test_a_server_killed_in_training_is_made_up_for_by_the_next_call(finished: RunDirectory, tmp_path: Path) -> None:
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    arguments = run_arguments(tmp_path, SMALL, f"tracking.mlflow_uri={uri}")
    with mlflow_server(tmp_path, port) as server, (tmp_path / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            command(*arguments), env=environment(tmp_path), cwd=REPOSITORY, stdout=output, stderr=output
        )
        metrics = tmp_path / "runs" / finished.name / "metrics.jsonl"
        while not (metrics.is_file() and '"step":2' in metrics.read_text()):
            assert process.poll() is None, (tmp_path / "output.txt").read_text()
            time.sleep(0.05)
        kill(server)
        assert process.wait(timeout=600) == 0, (tmp_path / "output.txt").read_text()
    run = the_run(tmp_path / "runs")
    assert "tracker-unavailable" in {event["kind"] for event in read(run.events)}
    assert differences(fingerprint(finished), fingerprint(run)) == []
    with mlflow_server(tmp_path, port):
        sightline(*arguments, home=tmp_path)
        client = MlflowClient(tracking_uri=uri)
        runs = mlflow_runs(client)
        history = client.get_metric_history(runs["train"].info.run_id, "reward/overall")
        (version,) = client.search_model_versions("name = 'small'")
    written = [(record["step"], record["reward/overall"]) for record in read(run.metrics) if "reward/overall" in record]
    assert [(point.step, point.value) for point in history] == written
    stages = {path.stem for path in run.stage_manifest("any").parent.glob("*.json")}
    assert {stage for stage in stages if not stage.startswith("train")} | {"train", "pipeline"} == runs.keys()
    assert {stage.info.status for stage in runs.values()} == {"FINISHED"}
    assert version.tags["sightline.run"] == run.name
    assert version.tags["champion.decision"]

"""A run and Prefect's server when one of them goes away; a deployment that a worker carries out; the pages."""

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil
import pytest
import yaml
from prefect.automations import Automation
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.settings import PREFECT_API_URL, temporary_settings

from rl_core.run_directory import RunDirectory
from tests.e2e.processes import PREFECT, free_port, has_recorded, prefect_server, run_of, started, wait_until
from tests.e2e.runs import REPOSITORY, SMALL, command, environment

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def flow_run_states(home: Path, run: RunDirectory) -> list[str]:
    """Final states of a run's flow runs, the oldest first, from Prefect's database."""
    with closing(sqlite3.connect(home / "prefect" / "prefect.db")) as database:
        rows = database.execute("select state_name from flow_run where name = ? order by created", (run.name,))
        return [name for (name,) in rows]


def test_the_run_finishes_without_its_server_and_says_so(home: Path, finished: RunDirectory, tmp_path: Path) -> None:
    arguments, run = run_of(home, "evaluation.modes=[greedy]")  # of the finished run, only the evaluations are left
    with (
        prefect_server(tmp_path, tmp_path / "server.txt") as (server, variables),
        started(arguments, variables, tmp_path / "run.txt") as process,
    ):
        is_under_way = lambda: run.log.is_file() and "train-epoch-002: " in run.log.read_text()  # noqa: E731
        wait_until(lambda: is_under_way() or process.poll() is not None, "the run is under way")
        os.killpg(server.pid, signal.SIGKILL)
        is_over = lambda: "report: finished" in run.log.read_text()  # noqa: E731
        wait_until(lambda: is_over() or process.poll() is not None, "the report is written")
        # Prefect's own attempts to send its last events would take minutes.
        assert process.wait(timeout=60) == 0, (tmp_path / "run.txt").read_text()
    output = (tmp_path / "run.txt").read_text()
    assert "Prefect's server went away" in output
    assert "Held-out accuracy" in output


def test_a_killed_run_leaves_no_process_and_ctrl_c_stops_its_continuation(
    home: Path, finished: RunDirectory, tmp_path: Path
) -> None:
    arguments, run = run_of(home, "actor.optim.lr=2.0e-3")
    with started(arguments, environment(home), tmp_path / "first.txt") as process:
        wait_until(lambda: has_recorded(run, 1), "a step is recorded")
        children = psutil.Process(process.pid).children(recursive=True)
        assert any("prefect.server.api.server:create_app" in child.cmdline() for child in children)
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive
    with started(arguments, environment(home), tmp_path / "second.txt") as process:
        wait_until(lambda: has_recorded(run, 2), "the continued run records a step")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=200) == 130, (tmp_path / "second.txt").read_text()
    assert f"sightline run --resume {run.name}" in (tmp_path / "second.txt").read_text()
    assert flow_run_states(home, run) == ["Crashed", "Interrupted"]
    # another learning rate trains anew, on the rows and from the weights of the finished run
    origins = {json.loads(run.stage_manifest(stage).read_text())["reused_from"] for stage in ("prepare", "cold-start")}
    assert origins == {finished.name}
    assert '"kind":"reward_failed"' not in run.events.read_text()


def assert_deployed_as_written() -> None:
    """What the server made of prefect.yaml, and that it takes automations.yaml."""
    written = {one["name"]: one for one in yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())["deployments"]}
    automations = yaml.safe_load((REPOSITORY / "automations.yaml").read_text().replace("BLOCK_ID", str(uuid4())))
    with get_client(sync_client=True) as client:
        deployed = {one.name: one for one in client.read_deployments()}
    assert deployed.keys() == written.keys()
    for name, one in deployed.items():
        wanted = written[name]
        assert (one.description, one.tags) == (wanted["description"], wanted["tags"])
        assert one.global_concurrency_limit is None
        assert one.work_queue_name == wanted["work_pool"].get("work_queue_name", "default")
        assert one.enforce_parameter_schema and one.parameters == wanted.get("parameters", {})
        slugs = {schedule["slug"]: schedule["cron"] for schedule in wanted.get("schedules", [])}
        assert {schedule.slug: schedule.schedule.cron for schedule in one.schedules} == slugs
        assert not any(schedule.active for schedule in one.schedules)
    for automation in automations["automations"]:
        assert Automation(**automation).create().id


def schedule_soon(parameters: Mapping[str, Any]) -> None:
    """Give the deployment a schedule: once in seconds, then in a day."""
    due = IntervalSchedule(interval=timedelta(days=1), anchor_date=datetime.now(UTC) + timedelta(seconds=3))
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name("baseline/quickstart")
        schedule = DeploymentScheduleCreate(schedule=due, parameters=dict(parameters))
        client.create_deployment_schedules(deployment.id, [schedule])


def scheduled_states() -> list[str]:
    """Names of the states of the flow runs that the scheduler made."""
    with get_client(sync_client=True) as client:
        return [run.state_name for run in client.read_flow_runs() if run.auto_scheduled]


def test_a_worker_carries_out_what_is_asked_for_and_what_is_scheduled(
    home: Path, finished: RunDirectory, tmp_path: Path
) -> None:
    settings = [f"tracking.mlflow_uri=sqlite:///{home}/mlflow.db", "evaluation.temperature=0.5"]
    parameters = {"config": str(SMALL), "overrides": settings, "runs_dir": str(home / "runs")}
    chosen = [part for name, value in parameters.items() for part in ("--param", f"{name}={json.dumps(value)}")]
    with prefect_server(tmp_path, tmp_path / "server.txt") as (_, variables):

        def prefect(*arguments: str) -> str:
            done = subprocess.run(
                [*PREFECT, *arguments], env=variables, cwd=REPOSITORY, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        prefect("work-pool", "create", "local", "--type", "process")
        prefect("deploy", "--all", "--no-prompt")
        with (
            temporary_settings({PREFECT_API_URL: variables["PREFECT_API_URL"]}),
            started([*PREFECT, "worker", "start", "--pool", "local"], variables, tmp_path / "worker.txt"),
        ):
            assert_deployed_as_written()
            assert "Completed" in prefect("deployment", "run", "baseline/quickstart", *chosen, "--watch")
            assert scheduled_states() == []
            schedule_soon(parameters)
            wait_until(lambda: "Completed" in scheduled_states(), "a scheduled run is carried out")
    summary = json.loads((run_of(home, "evaluation.temperature=0.5")[1].summary).read_text())
    assert summary["reused"]["train-epoch-002"] == finished.name


def test_the_pages_open_and_ctrl_c_closes_them(home: Path, finished: RunDirectory, tmp_path: Path) -> None:
    mlflow_port, prefect_port = free_port(), free_port()
    ports = ["--mlflow-port", str(mlflow_port), "--prefect-port", str(prefect_port)]
    arguments = command("ui", "--mlflow-uri", f"sqlite:///{home}/mlflow.db", *ports)
    with started(arguments, environment(home), tmp_path / "ui.txt") as process:
        wait_until(lambda: "Ctrl-C" in (tmp_path / "ui.txt").read_text(), "both pages are up")
        assert "<html" in httpx.get(f"http://127.0.0.1:{mlflow_port}").text
        assert "<html" in httpx.get(f"http://127.0.0.1:{prefect_port}", follow_redirects=True).text
        children = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 0
        _, alive = psutil.wait_procs(children, timeout=30)
        assert not alive

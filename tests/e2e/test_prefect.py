"""A deployment that a worker carries out, and the pages."""

import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psutil
import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.server.events.schemas.automations import AutomationCreate
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling, Scheduled

from flows.request import resume_command
from rl_core.run_directory import RunDirectory
from tests.e2e.processes import PREFECT, prefect, prefect_server, run_of
from tests.e2e.runs import REPOSITORY, SMALL, command, environment
from tests.servers import free_port, started, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def assert_deployed_as_written() -> None:
    """What the server made of prefect.yaml."""
    written = {one["name"]: one for one in yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())["deployments"]}
    with get_client(sync_client=True) as client:
        deployed = {one.name: one for one in client.read_deployments()}
    assert deployed.keys() == written.keys()
    for name, one in deployed.items():
        wanted = written[name]
        assert (one.description, one.tags) == (wanted["description"], wanted["tags"])
        assert one.global_concurrency_limit is None, "no lease that a server could let expire"
        assert one.work_queue_name == wanted["work_pool"].get("work_queue_name", "default")
        assert one.enforce_parameter_schema and one.parameters == wanted.get("parameters", {})
        slugs = {schedule["slug"]: schedule["cron"] for schedule in wanted.get("schedules", [])}
        assert {schedule.slug: schedule.schedule.cron for schedule in one.schedules} == slugs
        assert not any(schedule.active for schedule in one.schedules)


def test_the_server_takes_the_automations_as_they_are_written() -> None:
    """By the schema of its request, and not by a request: on SQLite that can stop Prefect's server, see
    docs/operations.md."""
    automations = yaml.safe_load((REPOSITORY / "automations.yaml").read_text().replace("BLOCK_ID", str(uuid4())))
    assert [AutomationCreate.model_validate(automation) for automation in automations["automations"]]


def schedule_soon(parameters: Mapping[str, Any]) -> None:
    """Give the deployment a schedule: once in seconds, then in a day. The scheduler, which looks every two seconds,
    must have looked before."""
    due = IntervalSchedule(interval=timedelta(days=1), anchor_date=datetime.now(UTC) + timedelta(seconds=12))
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name("baseline/quickstart")
        schedule = DeploymentScheduleCreate(schedule=due, parameters=dict(parameters))
        client.create_deployment_schedules(deployment.id, [schedule])


def scheduled_states(client: SyncPrefectClient) -> list[str]:
    """Names of the states of the flow runs that the scheduler made."""
    return [run.state_name for run in client.read_flow_runs() if run.auto_scheduled]


def test_a_worker_carries_out_what_is_scheduled(home: Path, finished: RunDirectory, new_home: Path) -> None:
    settings = [f"tracking.mlflow_uri=sqlite:///{home}/mlflow.db", "evaluation.temperature=0.5"]
    parameters = {
        "config": str(SMALL),
        "overrides": settings,
        "stages": "evaluate",  # of the finished run, only these are left
        "runs_dir": str(home / "runs"),
    }
    with prefect_server(new_home, new_home / "server.txt") as (_, variables):
        prefect("work-pool", "create", "local", "--type", "process", variables=variables)
        prefect("deploy", "--all", "--no-prompt", variables=variables)
        with (
            temporary_settings({PREFECT_API_URL: variables["PREFECT_API_URL"]}),
            get_client(sync_client=True) as client,
        ):
            assert_deployed_as_written()
            with started([*PREFECT, "worker", "start", "--pool", "local"], variables, new_home / "worker.txt"):
                assert scheduled_states(client) == []
                schedule_soon(parameters)
                wait_until(lambda: "Completed" in scheduled_states(client), "a scheduled run is carried out")
    run = run_of(home, "evaluation.temperature=0.5")[1]
    assert json.loads(run.stage_manifest("train-epoch-002").read_text())["reused_from"] == finished.name
    assert json.loads(run.stage_manifest("evaluate-trained").read_text())["reused_from"] is None


def deployed(flow: str, entrypoint: str, parameters: Mapping[str, Any], *, queue: str = "default") -> UUID:
    """Deploy a flow to the local pool. Returns the deployment's id."""
    with get_client(sync_client=True) as client:
        return client.create_deployment(
            flow_id=client.create_flow_from_name(flow),
            name="of-this-test",
            entrypoint=entrypoint,
            path=str(REPOSITORY),
            parameters=dict(parameters),
            work_pool_name="local",
            work_queue_name=queue,
        )


@pytest.mark.slow
def test_a_workers_run_reports_its_end_when_the_server_is_back_and_the_worker_goes_on(new_home: Path) -> None:
    overrides = [f"tracking.mlflow_uri=sqlite:///{new_home}/mlflow.db"]
    parameters = {"config": str(SMALL), "overrides": overrides, "runs_dir": str(new_home / "runs")}
    run, port, output = run_of(new_home, *overrides)[1], free_port(), new_home / "worker.txt"
    with ExitStack() as stack:
        with prefect_server(new_home, new_home / "server.txt", port=port) as (server, variables):
            prefect("work-pool", "create", "local", "--type", "process", variables=variables)
            worker = stack.enter_context(started([*PREFECT, "worker", "start", "--pool", "local"], variables, output))
            stack.enter_context(temporary_settings({PREFECT_API_URL: variables["PREFECT_API_URL"]}))
            client = stack.enter_context(get_client(sync_client=True))
            deployment = deployed("prepare", "flows/baseline.py:prepare_part", parameters)
            flow_run = client.create_flow_run_from_deployment(deployment).id
            wait_until(lambda: run.log.is_file(), "the run is open")
            os.killpg(server.pid, signal.SIGKILL)
            wait_until(lambda: "this process waits for it" in output.read_text(), "the run has ended")
            assert run.stage_manifest("prepare").is_file()
        with prefect_server(new_home, new_home / "server.txt", port=port):
            wait_until(lambda: client.read_flow_run(flow_run).state_name == "Completed", "the server hears of the end")
            again = client.create_flow_run_from_deployment(deployment).id
            wait_until(lambda: client.read_flow_run(again).state_name == "Completed", "the worker carries out another")
            assert worker.poll() is None


@pytest.mark.slow
def test_the_server_names_what_waits_and_a_cancel_keeps_how_to_continue(new_home: Path) -> None:
    ports = {name: free_port() for name in ("--prefect-port", "--mlflow-port", "--worker-port")}
    output, store = new_home / "server.txt", f"sqlite:///{new_home}/mlflow.db"
    overrides = [f"tracking.mlflow_uri={store}", "actor.optim.lr=2.0e-3"]
    parameters = {"config": str(SMALL), "overrides": overrides, "runs_dir": str(new_home / "runs")}
    run = run_of(new_home, *overrides)[1]
    arguments = command("server", "--mlflow-uri", store)
    arguments += [word for name, port in ports.items() for word in (name, str(port))]
    variables = environment(new_home) | {"PREFECT_WORKER_QUERY_SECONDS": "2"}
    api = f"http://127.0.0.1:{ports['--prefect-port']}/api"
    with started(arguments, variables, output) as process:
        wait_until(lambda: "Ctrl-C" in output.read_text(), "all are up")
        with temporary_settings({PREFECT_API_URL: api}), get_client(sync_client=True) as client:
            deployment = deployed("baseline", "flows/baseline.py:baseline", parameters)
            later = Scheduled(scheduled_time=datetime.now(UTC) + timedelta(days=1))
            waits = client.create_flow_run_from_deployment(deployment, state=later).id
            wait_until(lambda: client.read_flow_run(waits).name.startswith("small "), "what waits is named")
            assert client.read_flow_run(waits).name.endswith(f"Z {overrides[1]}")
            flow_run = client.create_flow_run_from_deployment(deployment).id
            wait_until(lambda: run.log.is_file(), "the run is open")
            client.set_flow_run_state(flow_run, Cancelling())

            def message() -> str:
                state = client.read_flow_run(flow_run).state
                return f"{state.name}: {state.message}"

            wait_until(lambda: resume_command(run) in message(), "the state says how to continue")
            assert message().startswith("Cancelled: ")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=90) == 0


@dataclass
class Watched:
    """Three flow runs that were asked for at the same time.

    Attributes:
        most: Most of them that were ever on devices together.
        devices: What each of them saw as its devices, by its id.
    """

    flow_runs: Sequence[UUID]
    most: int = 0
    devices: dict[UUID, str] = field(default_factory=dict)

    def have_ended(self, client: SyncPrefectClient) -> bool:
        found = [client.read_flow_run(flow_run) for flow_run in self.flow_runs]
        self.most = max(self.most, sum(run.state_type in ("PENDING", "RUNNING") for run in found))
        for run in found:
            if run.infrastructure_pid is not None:
                with suppress(psutil.NoSuchProcess):
                    pid = int(run.infrastructure_pid.rpartition(":")[2])
                    self.devices[run.id] = psutil.Process(pid).environ()["CUDA_VISIBLE_DEVICES"]
        return all(run.state_name == "Completed" for run in found)


@pytest.mark.slow
def test_each_group_of_devices_takes_one_run_at_a_time(home: Path, new_home: Path) -> None:
    """Of three runs two are side by side, each with devices of its own, and the third waits for one of them."""
    ports = {name: free_port() for name in ("--prefect-port", "--mlflow-port", "--worker-port")}
    api = f"http://127.0.0.1:{ports['--prefect-port']}/api"
    arguments = command("server", "--group", "0", "--group", "1,2", "--mlflow-uri", f"sqlite:///{home}/mlflow.db")
    arguments += [word for name, port in ports.items() for word in (name, str(port))]
    variables = environment(new_home) | {"PREFECT_WORKER_QUERY_SECONDS": "2"}
    with started(arguments, variables, new_home / "server.txt") as process:
        wait_until(lambda: "Ctrl-C" in (new_home / "server.txt").read_text(), "the workers are up")
        with temporary_settings({PREFECT_API_URL: api}), get_client(sync_client=True) as client:
            assert client.read_work_queue_by_name("devices", work_pool_name="local").concurrency_limit == 2
            cleaning = {"failed": True, "older_than": "30d", "runs_dir": str(new_home / "runs")}
            deployment = deployed("clean", "flows/clean.py:clean", cleaning, queue="devices")
            watched = Watched([client.create_flow_run_from_deployment(deployment).id for _ in range(3)])
            wait_until(lambda: watched.have_ended(client), "all three runs end")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=90) == 0
    assert watched.most == 2
    assert set(watched.devices.values()) == {"0", "1,2"} and len(watched.devices) == 3


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_process_of_the_server_that_dies_is_named_and_restarted_while_the_others_go_on(new_home: Path) -> None:
    """Each of the three is killed."""
    ports = {name: free_port() for name in ("--prefect-port", "--mlflow-port", "--worker-port")}
    output, store = new_home / "server.txt", f"sqlite:///{new_home}/mlflow.db"
    arguments = command("server", "--mlflow-uri", store)
    arguments += [word for name, port in ports.items() for word in (name, str(port))]
    variables = environment(new_home) | {"PREFECT_WORKER_QUERY_SECONDS": "2"}

    def child(words: str) -> psutil.Process | None:
        found = [one for one in psutil.Process(process.pid).children() if words in " ".join(one.cmdline())]
        return found[0] if found else None

    with started(arguments, variables, output) as process:
        wait_until(lambda: "Ctrl-C" in output.read_text(), "all are up")
        names = {"mlflow server": "MLflow", "worker start": "worker", "prefect server": "Prefect"}
        for number, (words, name) in enumerate(names.items()):
            before = {other: child(other) for other in names}
            before[words].send_signal((signal.SIGKILL, signal.SIGSEGV, signal.SIGKILL)[number])
            wait_until(lambda name=name: f"{name} is there again" in output.read_text(), f"{name} is there again")
            assert f"{name} was killed by signal SIG{('KILL', 'SEGV', 'KILL')[number]}" in " ".join(
                output.read_text().split()
            )
            assert [other for other in names if child(other) != before[other]] == [words]
        children = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=90) == 0
        _, alive = psutil.wait_procs(children, timeout=30)
        assert not alive

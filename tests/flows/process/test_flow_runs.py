"""A flow run whose process was killed is marked by the next start of its run, and only then."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.states import Running, Scheduled

from flows.process.flow_runs import (
    WaitingRuns,
    has_noted_end,
    mark_abandoned,
    planned_start,
    remembered,
    waiting_name,
)
from rl_core.run_directory import RunDirectory
from rl_core.stop import Interrupted
from tasks.attempts import remember

pytestmark = pytest.mark.usefixtures("prefect_server")


@flow
def nothing() -> None:
    """Does nothing."""


@pytest.fixture
def client() -> Iterator[SyncPrefectClient]:
    with get_client(sync_client=True) as client:
        yield client


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "run").mkdir()
    return RunDirectory(tmp_path / "run")


def flow_run(client: SyncPrefectClient, state) -> str:
    return str(client.create_flow_run(nothing, state=state).id)


def state_of(client: SyncPrefectClient, flow_run_id: str) -> str:
    return client.read_flow_run(flow_run_id).state.name


def test_flow_runs_made_in_one_moment_have_starts_of_their_own_that_a_retry_keeps(
    client: SyncPrefectClient,
) -> None:
    weeks = [datetime(2030, 1, 5, 4, tzinfo=UTC) + timedelta(weeks=week) for week in range(3)]
    planned = [client.create_flow_run(nothing, state=Scheduled(scheduled_time=week)) for week in weeks]
    assert [planned_start(flow_run) for flow_run in planned] == weeks
    client.set_flow_run_state(planned[0].id, Scheduled(name="AwaitingRetry"), force=True)
    assert planned_start(client.read_flow_run(planned[0].id)) == weeks[0]


def test_a_flow_run_that_waits_for_a_worker_is_left_alone(client: SyncPrefectClient, run: RunDirectory) -> None:
    retried = flow_run(client, Scheduled(name="AwaitingRetry"))
    remember(run, retried)
    assert mark_abandoned(run) is None
    assert state_of(client, retried) == "AwaitingRetry"


@pytest.mark.parametrize(
    ("error", "state"),
    [(None, "Completed"), (Interrupted(15), "Interrupted"), (ArithmeticError(), "Failed")],
)
def test_a_flow_run_that_could_not_report_its_end_is_given_it(
    client: SyncPrefectClient, run: RunDirectory, error: Exception | None, state: str
) -> None:
    ended = flow_run(client, Running())
    with suppress(Interrupted, ArithmeticError), remembered(run, ended):
        if error:
            raise error
    assert state in mark_abandoned(run)
    assert state_of(client, ended) == state


def test_a_retried_flow_run_does_not_crash_itself(client: SyncPrefectClient, run: RunDirectory) -> None:
    retried = flow_run(client, Running())
    remember(run, retried)
    mark_abandoned(run, current=retried)
    assert state_of(client, retried) == "Running"


def test_other_flow_runs_are_left_alone(client: SyncPrefectClient, run: RunDirectory) -> None:
    other = flow_run(client, Running())
    mark_abandoned(run, current=str(uuid4()))
    remember(run, flow_run(client, Running()))
    mark_abandoned(run, current=str(uuid4()))
    assert state_of(client, other) == "Running"


def test_a_killed_flow_run_has_noted_no_end(run: RunDirectory) -> None:
    flow_run, other = str(uuid4()), str(uuid4())
    assert not has_noted_end(run, flow_run)
    remember(run, flow_run)
    assert not has_noted_end(run, flow_run)
    with remembered(run, flow_run):
        assert not has_noted_end(run, flow_run)
    assert has_noted_end(run, flow_run) and not has_noted_end(run, other)


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        (
            {
                "config": "tests/e2e/configs/small.yaml",
                "overrides": ["seed=7", "tracking.mlflow_uri=null", "trainer.max_steps=2"],
            },
            "small {} seed=7 trainer.max_steps=2",
        ),
        ({"config": "tests/e2e/configs/small.yaml", "overrides": ["experiment=mine"]}, "mine {} experiment=mine"),
        ({"config": "tests/e2e/configs/small.yaml", "seeds": "1-3"}, "small {} seeds 1-3"),
        ({"config": "nowhere.yaml"}, "nowhere.yaml {}"),
        ({"config": "nowhere.yaml", "resume": "small-1"}, "small-1 {}"),
        ({"config": "s3://key:secret@host/x.yaml"}, "s3://key:***@host/x.yaml {}"),
        ({"baselines": ["one", "two"], "overrides": []}, "one, two {}"),
        ({"older_than": "30d"}, None),
        ({"config": ""}, None),
    ],
)
def test_a_waiting_flow_run_is_named_by_its_parameters(
    parameters: dict[str, object], name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    wanted = name and name.format("2026-01-02 03:04Z")
    assert waiting_name(parameters, datetime(2026, 1, 2, 3, 4, tzinfo=UTC)) == wanted


def test_runs_that_wait_are_named_once_and_those_that_have_begun_are_left_alone(client: SyncPrefectClient) -> None:
    @flow
    def asks(config: str) -> None:
        """Does nothing."""

    due = Scheduled(scheduled_time=datetime(2030, 1, 2, tzinfo=UTC))
    given = {"config": "nowhere.yaml"}
    waits, runs = (client.create_flow_run(asks, parameters=given, state=state) for state in (due, Running()))
    others = client.create_flow_run(nothing, state=due)
    names = WaitingRuns(client)
    names.name()
    assert client.read_flow_run(waits.id).name == "nowhere.yaml 2030-01-02 00:00Z"
    assert [client.read_flow_run(each.id).name for each in (runs, others)] == [runs.name, others.name]
    client.update_flow_run(waits.id, name="by a person")
    names._due = 0.0
    names.name()
    assert client.read_flow_run(waits.id).name == "by a person"

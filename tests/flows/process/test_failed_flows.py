"""What a worker's hook says about a flow run whose process could not speak any more."""

from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.states import Cancelled, Cancelling, Crashed, Running

from flows.baseline import baseline
from flows.process.failed_flows import explain
from flows.process.flow_runs import planned_start
from flows.request import RunRequest, resume_command
from rl_core.run_directory import RunDirectory
from tasks.attempts import remember
from tests.flows.artifacts import artifacts_of
from tests.servers import wait_until

pytestmark = pytest.mark.usefixtures("prefect_server", "at_the_root")

KILLED = Crashed(message="exit status -9")


def flow_run_of(runs_dir: Path, **parameters: object) -> FlowRun:
    given = {"config": "tests/e2e/configs/small.yaml", "runs_dir": str(runs_dir)} | parameters
    with get_client(sync_client=True) as client:
        return client.create_flow_run(baseline, parameters=given, state=Running())


def the_run(flow_run: FlowRun) -> RunDirectory:
    run = RunRequest.of_parameters(flow_run.parameters).resolved(planned_start(flow_run)).run
    run.root.mkdir(parents=True)
    return run


def pages_of(flow_run: FlowRun) -> list[str]:
    return [artifact.data for artifact in artifacts_of(flow_run.id)]


def test_a_killed_flow_run_gets_a_page_with_the_end_of_its_log(tmp_path: Path) -> None:
    flow_run = flow_run_of(tmp_path)
    run = the_run(flow_run)
    run.log.write_text("\n".join(f"line {number}" for number in range(100)))
    remember(run, str(flow_run.id))
    explain(baseline, flow_run, KILLED)
    (page,) = pages_of(flow_run)
    assert "exit status -9" in page and resume_command(run) in page
    assert "line 99" in page and "line 10\n" not in page


def test_a_flow_run_that_noted_its_end_itself_is_not_explained_again(tmp_path: Path) -> None:
    flow_run = flow_run_of(tmp_path)
    remember(the_run(flow_run), str(flow_run.id), end="interrupted")
    explain(baseline, flow_run, KILLED)
    assert pages_of(flow_run) == []


def test_a_flow_run_whose_config_is_gone_gets_a_page_without_a_run(tmp_path: Path) -> None:
    flow_run = flow_run_of(tmp_path, config="nowhere.yaml")
    explain(baseline, flow_run, KILLED)
    (page,) = pages_of(flow_run)
    assert "exit status -9" in page and "sightline run" not in page


@pytest.mark.parametrize("has_told", [True, False])
def test_a_cancel_keeps_how_to_continue_whatever_the_worker_says(tmp_path: Path, has_told: bool) -> None:
    """Whether the flow could say it in its state, or was killed before."""
    flow_run = flow_run_of(tmp_path)
    sentence = f"cancelled in Prefect; what was finished is kept; to continue: {resume_command(the_run(flow_run))}"
    with get_client(sync_client=True) as client:
        before = Cancelled(message=sentence) if has_told else Cancelling()
        client.set_flow_run_state(flow_run.id, before, force=True)
        explain(baseline, flow_run, Cancelling())
        client.set_flow_run_state(flow_run.id, Cancelled(message="Flow run was cancelled successfully."), force=True)

        def message() -> str | None:
            return client.read_flow_run(flow_run.id).state.message

        wait_until(lambda: message() == sentence, "the state says how to continue")

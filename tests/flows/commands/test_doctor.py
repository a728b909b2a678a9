"""`sightline doctor` marks what a killed process left Running, and leaves living runs alone."""

from io import StringIO
from pathlib import Path
from uuid import uuid4

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.states import Running
from rich.console import Console

from flows.commands.doctor import examine
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock
from tasks.attempts import remember
from tests.damages import DAMAGES

pytestmark = pytest.mark.usefixtures("prefect_server")


@flow
def nothing() -> None:
    """Does nothing."""


def begun(runs_dir: Path, name: str) -> RunDirectory:
    run = RunDirectory(runs_dir / name)
    run.root.mkdir()
    run.config.write_text("experiment: x\n")
    return run


def running(runs_dir: Path, name: str) -> tuple[RunDirectory, str]:
    """A run and a flow run of it that says Running."""
    run = begun(runs_dir, name)
    with get_client(sync_client=True) as client:
        flow_run = client.create_flow_run(nothing, state=Running())
    remember(run, str(flow_run.id))
    return run, str(flow_run.id)


def state_of(flow_run: str) -> str:
    with get_client(sync_client=True) as client:
        return client.read_flow_run(flow_run).state.name


def examined(runs_dir: Path) -> str:
    text = StringIO()
    examine(runs_dir, Console(file=text, width=200))
    return text.getvalue()


def test_the_run_of_a_dead_process_is_marked_with_how_to_continue(tmp_path: Path) -> None:
    _, dead = running(tmp_path, "dead")
    text = examined(tmp_path)
    assert state_of(dead) == "Crashed"
    assert f"flow run {dead} was Running without a process, and is now marked Crashed" in text
    assert f"sightline run --resume dead --runs-dir {tmp_path}" in text
    assert "marked" not in examined(tmp_path)


def test_for_a_run_that_was_never_started_the_command_is_shown(tmp_path: Path) -> None:
    begun(tmp_path, "planned")
    text = examined(tmp_path)
    assert "unfinished" in text and "sightline run --resume planned" in text and "marked" not in text


@pytest.mark.parametrize("name", ["flow-run.json", "lock"])
def test_a_damaged_run_keeps_no_other_from_being_reported(tmp_path: Path, name: str) -> None:
    for number, damage in enumerate(DAMAGES):
        run = begun(tmp_path, f"damaged-{number}")
        remember(run, str(uuid4()))
        run.lock.write_text("1")
        DAMAGES[damage](run.root / name)
    _, dead = running(tmp_path, "dead")
    text = examined(tmp_path)
    assert f"flow run {dead} was Running without a process, and is now marked Crashed" in text
    assert all(f"damaged-{number} " in text for number in range(len(DAMAGES)))


def test_the_run_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    run, living = running(tmp_path, "living")
    with RunLock(run.lock):
        text = examined(tmp_path)
    assert state_of(living) == "Running"
    assert "written by the process with pid" in text and "marked" not in text

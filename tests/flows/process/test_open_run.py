"""Opening a run: one writer, its config on disk, signals, and how the body ended, which the flow run's page tells."""

import logging
import os
import re
import signal
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from prefect import State, flow, runtime
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import Artifact
from prefect.states import Cancelling

from flows.process.failed_flows import ENDINGS
from flows.process.flow_runs import flow_run_name
from flows.process.open_run import _logging_to, in_run, name_of_run
from flows.process.watcher import Watcher, watched_by
from flows.request import RunRequest
from rl_core.config.loading import load_config
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock, RunLocked
from tasks.cache.stages import run_name
from tasks.context import RunContext, current_context
from tasks.housekeeping.overview import overview
from tests.flows.artifacts import artifacts_of

pytestmark = pytest.mark.usefixtures("prefect_server", "at_the_root")

CONFIG = "tests/e2e/configs/small.yaml"
NO_MLFLOW = ["tracking.mlflow_uri=null"]


def opened(runs_dir: Path, body=lambda run: None, *, watcher: Watcher | None = None, config: str = CONFIG, **more):
    """Call a flow that opens the run and does `body`; returns its final state."""

    @flow(flow_run_name=name_of_run, **ENDINGS)
    def opening(
        runs_dir: str,
        config: str = "",
        overrides: Sequence[str] = (),
        resume: str = "",
        fresh: bool = False,
    ):
        request = RunRequest(config=config, overrides=overrides, resume=resume, fresh=fresh, runs_dir=runs_dir)
        return in_run(request, body)

    if "resume" not in more:
        more |= {"config": config, "overrides": NO_MLFLOW}
    with watched_by(watcher or Watcher()):
        return opening(str(runs_dir), **more, return_state=True)


def ending_page_of(state: State) -> Artifact:
    """The artifact that explains how a flow run ended."""
    artifacts = artifacts_of(state.state_details.flow_run_id)
    (page,) = [artifact for artifact in artifacts if artifact.key == "how-to-continue"]
    return page


def the_run(runs_dir: Path) -> RunDirectory:
    return RunDirectory(runs_dir / run_name(load_config(Path(CONFIG), NO_MLFLOW)))


def error_of(state: State) -> BaseException:
    error = state.result(raise_on_failure=False)
    assert isinstance(error, BaseException), state
    return error


def test_the_resolved_config_and_the_log_lie_in_the_runs_folder(tmp_path: Path) -> None:
    def body(run: RunContext) -> str:
        assert current_context(run.name) is run
        return run.name

    assert opened(tmp_path, body).result() == the_run(tmp_path).name
    assert load_config(the_run(tmp_path).config) == load_config(Path(CONFIG), NO_MLFLOW)
    assert the_run(tmp_path).log.is_file()
    with pytest.raises(LookupError, match="is not open in this process"):
        current_context(the_run(tmp_path).name)


def test_half_written_files_of_a_killed_process_are_swept(tmp_path: Path) -> None:
    run = the_run(tmp_path)
    for leftover in (run.root / ".merged.tmp-123", run.evaluation(".base.tmp-123")):
        leftover.mkdir(parents=True)
    (run.root / ".config.yaml.tmp-123").write_text("half")
    opened(tmp_path)
    assert not list(run.root.rglob(".*tmp*"))


def test_a_second_writer_is_refused_with_the_owners_pid(tmp_path: Path) -> None:
    run = the_run(tmp_path)
    with RunLock(run.lock):
        error = error_of(opened(tmp_path))
    assert isinstance(error, RunLocked)
    assert str(os.getpid()) in str(error)


def test_a_full_disk_costs_lines_of_the_log_and_prints_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with _logging_to(Path("/dev/full")):
        logging.getLogger("flows").warning("lost")
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_the_run_to_stop_and_the_flow_is_cancelled(tmp_path: Path, signum: signal.Signals) -> None:
    before = signal.getsignal(signum)

    def body(run: RunContext) -> None:
        signal.raise_signal(signum)
        assert run.stop.signum == signum
        run.stop.raise_if_requested()

    state = opened(tmp_path, body)
    assert state.is_cancelled() and state.name == "Interrupted"
    assert f"to continue: sightline run --resume {the_run(tmp_path).name}" in state.message
    assert "what was finished is kept" in ending_page_of(state).data
    assert signal.getsignal(signum) is before


def test_a_cancel_is_called_a_cancel(tmp_path: Path) -> None:
    """As on the page or by `prefect flow-run cancel`: the worker sends the signal, to this process too."""

    def body(run: RunContext) -> None:
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(runtime.flow_run.id, Cancelling(), force=True)
        signal.raise_signal(signal.SIGTERM)
        run.stop.raise_if_requested()

    state = opened(tmp_path, body)
    assert state.is_cancelled() and state.name == "Cancelled"
    assert "cancelled in Prefect" in state.message and "cancelled in Prefect" in ending_page_of(state).data
    assert overview(the_run(tmp_path)).status == "cancelled"
    log = the_run(tmp_path).log.read_text()
    assert "the run failed" not in log and "Traceback" not in log


def test_outside_the_main_thread_signals_are_left_alone(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    states: list[State] = []
    thread = threading.Thread(target=lambda: states.append(opened(tmp_path)))
    thread.start()
    thread.join()
    assert states[0].is_completed()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_fresh_run_is_tagged_with_its_start_and_reuses_nothing(tmp_path: Path) -> None:
    reuse = opened(tmp_path, lambda run: (run.name, run.reuse), fresh=True).result()
    assert reuse[0].startswith(f"{the_run(tmp_path).name}-20")
    assert reuse[1] is False


def test_a_failure_shows_its_cause_and_how_to_continue_and_frees_the_lock(tmp_path: Path) -> None:
    def body(run: RunContext) -> None:
        raise ArithmeticError("one and one is three")

    watcher = Watcher()
    state = opened(tmp_path, body, watcher=watcher)
    run = the_run(tmp_path)
    assert isinstance(error_of(state), ArithmeticError) and isinstance(watcher.error, ArithmeticError)
    assert not watcher.completed
    assert "one and one is three" in run.log.read_text()
    command = f"sightline run --resume {run.name} --runs-dir {tmp_path}"
    assert state.is_failed()
    assert state.message == f"ArithmeticError: one and one is three; to continue: {command}"
    page = ending_page_of(state)
    for part in (command, f"prefect flow-run retry {state.state_details.flow_run_id}", "one and one is three"):
        assert part in page.data, part
    assert "Traceback (most recent call last)" in page.data  # the end of the run's log
    assert opened(tmp_path).is_completed()


def test_a_failure_before_there_is_a_run_has_a_page_too(tmp_path: Path) -> None:
    page = ending_page_of(opened(tmp_path, config="nowhere.yaml"))
    assert "no config file" in page.data and "sightline run" not in page.data


def test_flow_runs_are_named_by_experiment_and_start_from_the_beginning(tmp_path: Path) -> None:
    def name_of(**more) -> str:
        states = []
        opened(tmp_path, lambda run: states.append(runtime.flow_run.name), **more)
        return states[0]

    run = the_run(tmp_path)
    names = [name_of(), name_of(resume=run.name), name_of(fresh=True)]
    digest = run.name.removeprefix("small-")
    for name in names:
        assert re.fullmatch(
            rf"small \d{{4}}-\d\d-\d\d \d\d:\d\dZ (tracking.mlflow_uri=null )?{digest}(-\d{{8}}T\d{{6}})?", name
        )
    first, later = (datetime(2026, 1, day, 4, 30, 59, tzinfo=UTC) for day in (1, 8))
    assert flow_run_name("small", first, digest) == f"small 2026-01-01 04:30Z {digest}"
    assert flow_run_name("small", first, digest)[:22] != flow_run_name("small", later, digest)[:22]
    assert (
        flow_run_name("nowhere.yaml", first.astimezone(timezone(timedelta(hours=2))))
        == "nowhere.yaml 2026-01-01 04:30Z"
    )

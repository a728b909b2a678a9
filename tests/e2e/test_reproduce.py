"""Sets of baselines from the command line, each baseline in a process of its own."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from rl_core.run_directory import RunDirectory
from tests.e2e.processes import has_recorded
from tests.e2e.runs import REPOSITORY, command, environment, fingerprint, sightline
from tests.results import differences
from tests.servers import started, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(1800)]

BASELINE = REPOSITORY / "tests" / "e2e" / "configs" / "baseline.yaml"


def reproduce(home: Path, *arguments: str) -> list[str]:
    where = ("--runs-dir", str(home / "runs"), "--set", f"tracking.mlflow_uri=sqlite:///{home}/mlflow.db")
    return ["reproduce", *arguments, *where]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_set_leaves_no_process_and_goes_on_by_its_name(
    signum: signal.Signals, finished: RunDirectory, tmp_path: Path
) -> None:
    arguments = command(*reproduce(tmp_path, str(BASELINE), "--fresh"))
    with started(arguments, environment(tmp_path), tmp_path / "output.txt") as process:
        runs = lambda: [RunDirectory(path.parent) for path in (tmp_path / "runs").glob("*/config.yaml")]  # noqa: E731
        wait_until(lambda: any(has_recorded(run, 1) for run in runs()), "a step is recorded", 1200.0)
        (run,) = runs()
        owner = psutil.Process(int(run.lock.read_text()))
        os.kill(process.pid, signum)
        assert process.wait(timeout=600) == (130 if signum == signal.SIGINT else -signal.SIGKILL)
        owner.wait(timeout=600)
    assert list(run.checkpoints.glob("step-*")), "it stopped without a checkpoint"
    (asked,) = (tmp_path / "runs" / "reproductions").glob("*/set.json")
    if signum == signal.SIGINT:
        assert f"--resume {asked.parent.name}" in (tmp_path / "output.txt").read_text()
    resumed = ("reproduce", "--resume", asked.parent.name, "--runs-dir", str(tmp_path / "runs"))
    sightline(*resumed, home=tmp_path, timeout=1800)
    assert differences(fingerprint(finished), fingerprint(run)) == []

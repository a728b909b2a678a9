"""One finished small run, made from the command line, shared by the end-to-end tests."""

import shutil
import time
from pathlib import Path

import psutil
import pytest

from rl_core.run_directory import RunDirectory
from tests.e2e.runs import command, environment, run_arguments, the_run
from tests.processes import listening
from tests.servers import started, wait_until


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the finished run, what it printed, its Prefect home and its MLflow database."""
    return tmp_path_factory.mktemp("finished")


@pytest.fixture(scope="session")
def addresses(home: Path) -> set[str]:
    """Makes the finished run: where it, and what it started, listened while it worked."""
    found: set[str] = set()
    with started(command(*run_arguments(home)), environment(home), home / "output.txt") as process:

        def ended() -> bool:
            time.sleep(1.0)  # to look at all connections of all processes takes its time
            found.update(listening(psutil.Process(process.pid)) if process.poll() is None else ())
            return process.poll() is not None

        wait_until(ended, "the run ends", seconds=600)
    assert process.returncode == 0, (home / "output.txt").read_text()
    return found


@pytest.fixture(scope="session")
def finished(home: Path, addresses: set[str]) -> RunDirectory:
    """The finished run. Tests must not change it."""
    return the_run(home / "runs")


@pytest.fixture
def new_home(home: Path, finished: RunDirectory, tmp_path: Path) -> Path:
    """A home without runs. Its Prefect database has those of `home`: making a new one takes its time."""
    shutil.copytree(home / "prefect", tmp_path / "prefect")
    return tmp_path

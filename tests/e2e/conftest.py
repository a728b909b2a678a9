"""One finished small run, made from the command line, shared by the end-to-end tests."""

from pathlib import Path

import pytest

from rl_core.run_directory import RunDirectory
from tests.e2e.runs import run_arguments, sightline, the_run


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the finished run, its Prefect home and its MLflow database."""
    return tmp_path_factory.mktemp("finished")


@pytest.fixture(scope="session")
def first_output(home: Path) -> str:
    """What the first `sightline run` of the small config printed."""
    return sightline(*run_arguments(home), home=home, timeout=600).stdout


@pytest.fixture(scope="session")
def finished(home: Path, first_output: str) -> RunDirectory:
    """The finished run. Tests must not change it."""
    return the_run(home / "runs")

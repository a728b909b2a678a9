"""A migrated MLflow database, made once: migrating takes seconds, copying does not."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_core.environment import disable_telemetry
from rl_core.run_directory import RunDirectory

disable_telemetry()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from rl_core.tracking.mlflow_access import MlflowAccess

    path = tmp_path_factory.mktemp("mlflow") / "empty.db"
    MlflowAccess(f"sqlite:///{path}").call(lambda client: client.search_experiments())
    return path


@pytest.fixture
def new_database(empty_database: Path, tmp_path: Path) -> Callable[[], str]:
    """Makes a new SQLite database and returns its URI."""
    made: list[Path] = []

    def make() -> str:
        path = tmp_path / f"{len(made)}.db"
        shutil.copy(empty_database, path)
        made.append(path)
        return f"sqlite:///{path}"

    return make


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "counting-abc")

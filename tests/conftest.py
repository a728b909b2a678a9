"""Settings of every test."""

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from rl_core.environment import disable_telemetry
from tests.shared_engines import enter

pytest_plugins = ["tests.samples"]

# A person's own servers are no place for what tests write, and the bounds are those of float32 on a CPU.
for variable in [name for name in os.environ if name.startswith(("MLFLOW_TRACKING_", "PREFECT_API_"))]:
    del os.environ[variable]
os.environ["CUDA_VISIBLE_DEVICES"] = ""
disable_telemetry()  # before any library is imported that has one
# Tests run side by side on all cores, some with more threads than cores, so waiting threads sleep at once. A person's
# runs wait in another way, which changes no number: see rl_core.environment.share_cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# A deadline measures the machine, not the code: these tests share few cores with others. The same commit draws the
# same examples in every run, so that a red test is the change's own; `make test-slow` searches among new ones.
settings.register_profile("sightline", deadline=None, max_examples=50, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=200)
settings.load_profile("sightline")


APART = ("tests/rl_core/workers/test_actor_group.py", "tests/rl_core/workers/test_ray_group.py")
"""Modules that share nothing with their folder and wait for minutes."""


class FolderScheduling(LoadScopeScheduling):
    """One process runs all tests of a folder: they share what is costly to start (an engine, a finished run)."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return module if module in APART else module.rpartition("/")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FolderScheduling | None:
    """How `make test` shares the tests out among its processes; another `--dist` is left as it is."""
    return FolderScheduling(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tell what the tests of a folder share that another folder's are next."""
    enter(item.path.parent)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Nothing that the collection of tests makes is garbage, and nothing of it is looked through later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish() -> None:
    """pytest looks for garbage five times at its end, each time among everything in the process."""
    gc.freeze()


LONGEST_FOLDERS = (
    "tests/e2e/",
    "tests/rl_core/workers/",
    "tests/flows/",
    "tests/tasks/model_check/",
    "tests/rl_core/rollout/",
    "tests/rl_core/training/",
)
"""They are run first, so that no process goes on long after the others have ended."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest folders first, and leave the order of the others as it is."""
    items.sort(key=lambda item: [not item.nodeid.startswith(folder) for folder in LONGEST_FOLDERS])


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated MLflow database, made once by each process of tests: migrating takes seconds, copying does not."""
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

"""Prefect's own test server for the flows, and one small run that its tests look at."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """A Prefect server with a database of its own. Without heartbeats a call costs 0.1 s, not 1 s."""
    from prefect.testing.utilities import prefect_test_harness  # which imports the whole server

    with (
        prefect_test_harness(server_startup_timeout=180),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ):
        yield


@pytest.fixture
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths inside a config start at the repository's root."""
    monkeypatch.chdir(ROOT)

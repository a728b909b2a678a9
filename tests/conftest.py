"""Settings of every test."""

import os

import pytest
from hypothesis import settings

# A deadline measures the machine, not the code: these tests run beside others on few cores.
settings.register_profile("sightline", deadline=None)
settings.load_profile("sightline")

# It would win over the databases that tests name.
os.environ.pop("MLFLOW_TRACKING_URI", None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one folder share what is costly to start (an engine, a finished run), so that one process runs them all;
    `make test` has a process for every core."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path.parent)))

"""The run that the tests of the trackers follow."""

import pytest

from rl_core.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return RunDirectory(tmp_path / "counting-abc")

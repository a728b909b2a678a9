"""The run that the tests of the trackers follow."""

from pathlib import Path

import pytest

from rl_core.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "counting-abc")

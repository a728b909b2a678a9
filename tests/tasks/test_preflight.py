"""A run that joins a cluster has its machines checked, and what was found is an event."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_core.config.cluster import ClusterConfig
from rl_core.config.run import RunConfig
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from rl_core.workers.local_ray import LocalRay
from rl_core.workers.ray_cluster import ClusterUnavailable
from tasks.preflight import EVENT, node_problems
from tests.tasks.finished_run import config_with


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.root.mkdir()
    return run


@pytest.fixture
def address() -> Iterator[str]:
    """The address of a cluster with one CPU."""
    cluster = LocalRay(ClusterConfig(device="cpu"))
    yield cluster.address
    cluster.close()


def joining(address: str, *overrides: str) -> RunConfig:
    return config_with(f"cluster.address={address}", "cluster.device=cpu", *overrides)


def test_a_machine_of_a_joined_cluster_is_recorded(address: str, run: RunDirectory) -> None:
    assert not any(problem.fatal for problem in node_problems(joining(address), run))
    (event,) = read(run.events)
    assert event["kind"] == EVENT and event["link_gbit"] is None
    (machine,) = event["machines"]
    assert machine["versions"]["torch"].startswith("2.") and machine["free_memory_gib"] > 0
    with pytest.raises(ClusterUnavailable, match="no 1 machine"):
        node_problems(joining(address, "cluster.devices=2", "cluster.start_timeout_seconds=1"), run)


def test_without_a_cluster_to_join_nothing_is_asked(run: RunDirectory) -> None:
    assert node_problems(config_with("cluster.devices=2"), run) == []
    assert not run.events.exists()

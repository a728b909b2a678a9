"""The machines of a cluster are checked before they get work. Two raylets here are two machines."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import ray

from rl_core.config.cluster import ClusterConfig
from rl_core.problem import Problem
from rl_core.workers.node_check import (
    SLOW_GBIT,
    check_nodes,
    driver_problems,
    folder_problems,
    gpu_room_problems,
    link_problems,
    room_problems,
)
from rl_core.workers.node_probe import NodeFacts
from rl_core.workers.versions import versions
from tests.machines import joined_from_here

GOOD = NodeFacts(
    host="second",
    versions={},
    free_memory_gib=64.0,
    free_disk_gib=100.0,
    free_gpus_gib=(79.0, 78.5, 3.0),
    unusable_gpu=None,
    seen="token",
    why_unwritable=None,
)
RUNS = Path("/data/runs/run")


def test_a_machine_with_the_runs_folder_and_room_has_no_problem():
    assert [*folder_problems([GOOD], RUNS, token="token")] == []
    assert [*room_problems([GOOD], 60.0), *room_problems([GOOD], None)] == []
    assert [*gpu_room_problems([GOOD], 72.0, gpus=2), *gpu_room_problems([GOOD], None, gpus=3)] == []


@pytest.mark.parametrize(
    ("node", "unseen", "what"),
    [
        (replace(GOOD, seen=None), [], "does not see the run's folder /data/runs/run"),
        (replace(GOOD, seen="another run's"), [], "does not see"),
        (replace(GOOD, why_unwritable="Read-only file system"), [0], "cannot write .*: Read-only file system"),
        (GOOD, [0], "is not seen by the run's process"),
    ],
)
def test_a_folder_that_is_not_shared_is_named(node, unseen, what):
    (problem,) = folder_problems([node], RUNS, token="token", unseen=unseen)
    assert problem.fatal and problem.where == "machine second" and "--runs-dir" in problem.fix
    with pytest.raises(ValueError, match=what):
        raise ValueError(problem.what)


def test_little_memory_and_little_disk_are_warnings():
    few = replace(GOOD, free_memory_gib=10.0, free_disk_gib=1.0)
    memory, disk = room_problems([few], 60.0)
    assert not memory.fatal and "10.0 GiB of its memory are free" in memory.what and "60.0 GiB" in memory.what
    assert not disk.fatal and "1.0 GiB are free for temporary files" in disk.what


def test_a_machine_whose_torch_cannot_compute_on_its_gpu_is_named():
    found = Problem(where="GPU", what="its driver is 550.54", fix="update it")
    (problem,) = driver_problems([GOOD, replace(GOOD, host="third", unusable_gpu=found)])
    assert problem == replace(found, where="GPU of machine third") and problem.fatal


def test_gpus_that_others_use_are_a_warning():
    (problem,) = gpu_room_problems([GOOD], 72.0, gpus=3)
    assert not problem.fatal and problem.where == "machine second"
    assert "2 of its 3 GPUs have the 72.0 GiB free" in problem.what and "3.0 GiB" in problem.what
    assert [*gpu_room_problems([replace(GOOD, free_gpus_gib=())], 72.0, gpus=3)] == [], "the driver tells nothing"


def test_a_slow_link_is_a_warning_and_what_helps_depends_on_the_sharding():
    assert [*link_problems(SLOW_GBIT, ClusterConfig(), [GOOD])] == []
    (full,) = link_problems(0.9, ClusterConfig(sharding="full"), [GOOD])
    (hybrid,) = link_problems(0.9, ClusterConfig(sharding="hybrid"), [GOOD])
    assert not full.fatal and "0.9 Gbit/s" in full.what
    assert "hybrid" in full.fix and "hybrid" not in hybrid.fix and "NCCL_SOCKET_IFNAME" in hybrid.fix


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of two machines with one CPU each."""
    with joined_from_here() as machines:
        machines.add()
        yield machines.address
        assert not ray.is_initialized()


@pytest.fixture
def section(cluster) -> ClusterConfig:
    return ClusterConfig(nodes=2, devices=1, device="cpu", address=cluster)


@pytest.mark.slow
def test_two_machines_are_asked_and_their_link_is_measured(section, tmp_path):
    checked = check_nodes(section, tmp_path, machine_gib=0.001)
    assert len(checked.nodes) == 2 and not any(problem.fatal for problem in checked.problems)
    assert checked.link_gbit is not None and checked.link_gbit > 0.01
    assert [dict(node.versions) for node in checked.nodes] == [versions()] * 2
    assert [*tmp_path.iterdir()] == [], "what was written for the check is removed"

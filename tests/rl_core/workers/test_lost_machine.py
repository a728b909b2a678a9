"""A machine that goes is named with all its workers, and Ray's own words about it do not reach the terminal."""

import time

import pytest

from rl_core.config.cluster import ClusterConfig
from rl_core.workers.actor_group import ActorGroup
from rl_core.workers.protocol import WorkerDied
from rl_core.workers.ray_cluster import RayCluster
from tests.machines import SOON, joined_from_here


@pytest.mark.timeout(300)
def test_a_machine_that_goes_is_named_with_its_workers_in_one_message_of_ours_alone(capfd):
    with joined_from_here(cpus=2) as machines:
        other = machines.add()
        config = ClusterConfig(nodes=2, devices=2, device="cpu", address=machines.address)
        cluster = RayCluster(config)
        try:
            group = ActorGroup(cluster.actors(), start_seconds=SOON, hang_seconds=SOON)
            group.find_processes()
            there = {worker.pid for worker in other.workers}
            names = [group._watch.name(rank) for rank, process in enumerate(group.processes) if process.pid in there]
            assert len(names) == 2
            (stays, *_) = (rank for rank, process in enumerate(group.processes) if process.pid not in there)
            pending = {group.take(stays, 1): stays}  # it says nothing
            other.kill()
            with pytest.raises(WorkerDied) as death:
                group.ready(pending, "generate")
            assert death.value.lost is not None
            assert death.value.lost.machines == [group.processes[0].host]
            assert death.value.lost.names.split(", ") in (names, names[:1], names[1:]), "at once, or one before"
            with pytest.raises(WorkerDied, match="open new ones") as later:
                group.ready(pending, "update")
            assert later.value.lost is death.value.lost, "one loss, however many calls fail of it"
            time.sleep(5.0)
        finally:
            cluster.close()
    printed = "".join(capfd.readouterr())
    assert "aylet" not in printed and "node" not in printed, printed

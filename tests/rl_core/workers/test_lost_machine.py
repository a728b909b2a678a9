"""A machine of a cluster is lost: it is noticed soon, said, and the next workers are those for which there is room."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from rl_core.config.run import RunConfig
from rl_core.progress import SilentProgress
from rl_core.run_directory import RunDirectory
from rl_core.types import Group, TrainGroup
from rl_core.workers.folders import Opening, WorkerFolders
from rl_core.workers.protocol import WorkerDied
from rl_core.workers.ray_cluster import ClusterUnavailable
from rl_core.workers.ray_group import RayWorkerGroup
from tests.machines import SOON, Machines, joined_from_here
from tests.processes import pids_of
from tests.rl_core.builders import groups_of
from tests.servers import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with joined_from_here() as machines:
        yield machines
        assert machines.is_there, "a run has ended the cluster that it had joined"
        wait_until(lambda: machines.head.workers == [], "the last worker ends", seconds=30.0)


def compute_for_ever(group: RayWorkerGroup, batches: list[list[Group]]) -> None:
    """A lost worker goes on for a moment, and then ends in the middle of a pass."""
    while True:
        group.compute("old_log_probs", batches)


def test_a_lost_machine_is_named_and_training_can_go_on_with_what_is_left(
    machines: Machines, prepared_run: RunDirectory, config: RunConfig, train_groups: list[TrainGroup]
) -> None:
    """At first Ray itself does not know that the machine is gone, and would wait for it; and the worker that is left
    meets a closed connection before."""
    model = prepared_run.initial_model
    folders = WorkerFolders(model=model, base=model, data=prepared_run.data, images_per_prompt=1)

    @contextmanager
    def group(**section: object) -> Iterator[RayWorkerGroup]:
        joined = {"nodes": 2, "address": machines.address, "device": "cpu", **section}
        cluster = config.cluster.model_copy(update=joined)
        on_it = config.model_copy(update={"cluster": cluster})
        with closing(
            RayWorkerGroup(Opening(config=on_it, folders=folders, total_optimizer_steps=100), progress=SilentProgress())
        ) as opened:
            yield opened

    other, batches = machines.add(), [groups_of(train_groups)]
    with group() as two:
        two.compute("old_log_probs", batches)
        assert two.cluster.ranks == 2
        lost = pids_of(two).index(other.workers[0].pid)
        other.kill()
        began = time.monotonic()
        with pytest.raises(
            WorkerDied, match=rf"worker {lost} of 2 .* ended during compute old_log_probs: its machine is gone"
        ):
            compute_for_ever(two, batches)
        assert time.monotonic() - began < SOON
        with pytest.raises(WorkerDied, match=r"its machine is gone.*open new ones"):
            two.compute("old_log_probs", batches)

    few = pytest.raises(ClusterUnavailable, match=r"room for 1 of at least 2 worker\(s\)")
    with few, group(min_workers=2, wait_for_all_seconds=3.0):
        pass
    with group(min_workers=1, wait_for_all_seconds=5.0) as one:
        assert (one.cluster.nodes, one.cluster.devices) == (1, 1)
        assert one.compute("old_log_probs", batches)

"""The slots of a machine: never more than it has, in the order in which they were asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.loading import apply_override, validate_config
from rl_core.config.run import RunConfig
from rl_core.planning.gpu import Gpu
from rl_core.planning.slots import (
    Machine,
    Need,
    Slot,
    Slots,
    at_once_words,
    is_ever_shared,
    need_of,
    needs_of,
    why_alone,
)
from tests.rl_core.tracking.runs import a_config

MACHINES = st.builds(
    Machine,
    gpus=st.integers(0, 5).map(lambda count: tuple(f"GPU-{number}" for number in range(count))),
    cores=st.integers(1, 6),
    memory_gib=st.floats(1.0, 64.0),
)
NEEDS = st.builds(
    Need,
    gpus=st.integers(0, 6),
    cores=st.integers(0, 7),
    memory_gib=st.none() | st.floats(0.0, 80.0),
    joins_cluster=st.sampled_from([False, False, False, True]),
)


def check(machine: Machine, taken: list[Slot]) -> None:
    """Nobody has what another one has, and all together no more than there is."""
    gpus = [gpu for slot in taken for gpu in slot.gpus]
    assert len(set(gpus)) == len(gpus) and set(gpus) <= set(machine.gpus)
    if any(slot.has_all for slot in taken):
        assert len(taken) == 1 and taken[0].variables == {}
        return
    for slot in taken:
        assert len(slot.gpus) == slot.need.gpus
        assert slot.variables == ({"CUDA_VISIBLE_DEVICES": ",".join(slot.gpus)} if slot.gpus else {})
    assert sum(slot.need.cores for slot in taken) <= machine.cores
    assert sum(slot.need.memory_gib for slot in taken) <= machine.memory_gib


@given(machine=MACHINES, needs=st.lists(NEEDS, max_size=12), data=st.data())
def test_every_run_starts_in_its_order_and_no_part_of_the_machine_is_given_twice(machine, needs, data):
    """Whichever run ends next: a run that has no slot gets one at the latest when it alone is left."""
    slots, taken, most = Slots(machine), [], 0
    for need in needs:
        while (slot := slots.take(need)) is None:
            assert taken, "nobody has a part of the machine, and still there is no slot"
            ended = taken.pop(data.draw(st.integers(0, len(taken) - 1), label="ends"))
            slots.give_back(ended)
        taken.append(slot)
        most = max(most, len(taken))
        check(machine, taken)
        assert slot.has_all == (why_alone(need, machine) is not None)
    assert most <= 1 or is_ever_shared(needs, machine)


@pytest.mark.parametrize(
    ("need", "why"),
    [
        (Need(gpus=1, memory_gib=8.0, joins_cluster=True), "joins a Ray cluster"),
        (Need(gpus=1, memory_gib=None), "is not known yet"),
        (Need(gpus=3, memory_gib=8.0), "asks for 3 GPU(s), and this process may use 2"),
        (Need(cores=8, memory_gib=8.0), "8 threads, and there are 4 core(s) (cluster.threads)"),
        (Need(cores=1, memory_gib=65.0), "65.0 GiB of memory, and 64.0 GiB are there"),
        (Need(gpus=2, memory_gib=64.0), None),
        (Need(cores=4, memory_gib=64.0), None),
    ],
)
def test_a_run_that_cannot_share_the_machine_has_a_reason(need, why):
    reason = why_alone(need, Machine(gpus=("0", "1"), cores=4, memory_gib=64.0))
    assert reason is None if why is None else reason is not None and why in reason


GPU = Gpu(memory_gib=80.0)


def config_with(*overrides: str) -> RunConfig:
    tree = a_config().model_dump(mode="json")
    for override in overrides:
        apply_override(tree, override)
    return validate_config(tree, "test")


@pytest.mark.parametrize(
    ("cluster", "gpu", "gpus", "cores"),
    [
        ("{threads: 2}", None, 0, 2),
        ("{threads: 2, devices: 3}", None, 0, 6),
        ("{threads: 2, device: cpu}", None, 0, 2),
        ("{}", GPU, 1, 0),
        ("{devices: 4, placement: split}", GPU, 4, 0),
    ],
)
def test_a_run_takes_a_gpu_or_the_threads_of_each_worker(cluster, gpu, gpus, cores):
    need = need_of(config_with(f"cluster={cluster}"), gpu)
    assert (need.gpus, need.cores, need.joins_cluster) == (gpus, cores, False)
    assert need.memory_gib is not None and need.memory_gib > 0.5


def test_without_a_number_of_threads_a_run_takes_what_its_workers_share(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(1000, 1006)))  # whose siblings are not known
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [need.cores for need in needs_of([config_with(), config_with("cluster.devices=4")])] == [6, 4]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert need_of(config_with(), None).cores == 1


@pytest.mark.parametrize("cluster", ["{address: auto}", "{address: 'ray://head:10001'}", "{nodes: 2}"])
def test_a_run_that_joins_a_cluster_has_it_for_itself(cluster):
    assert need_of(config_with(f"cluster={cluster}"), None).joins_cluster


def test_the_memory_of_a_model_that_is_not_here_is_not_known():
    away = config_with("model.source={type: pretrained, path: nobody/never-seen}")
    assert need_of(away, None).memory_gib is None


@pytest.mark.parametrize(
    ("needs", "machine", "words"),
    [
        (
            [Need(cores=2, memory_gib=2.0)] * 5,
            (0, 4, 64.0),
            "2 at a time: a run takes 2 of 4 core(s) (cluster.threads) and about 2.0 of 64.0 GiB of memory",
        ),
        (
            [Need(gpus=1, memory_gib=40.0)] * 2,
            (4, 8, 64.0),
            "one after the other: a run takes 1 of 4 GPU(s) and about 40.0 of 64.0 GiB of memory",
        ),
        (
            [Need(gpus=3, memory_gib=2.0)] * 2,
            (2, 8, 64.0),
            "one after the other: a run asks for 3 GPU(s), and this process may use 2",
        ),
        (
            [Need(gpus=1, memory_gib=2.0), Need(gpus=2, memory_gib=2.0)],
            (2, 8, 64.0),
            "one after the other: no two fit together",
        ),
        ([Need(gpus=1, memory_gib=2.0), Need(gpus=2, memory_gib=2.0)], (3, 8, 64.0), "side by side as they fit"),
    ],
)
def test_the_number_of_simultaneous_runs_is_shown_with_its_reason(needs, machine, words):
    gpus, cores, memory = machine
    there = Machine(gpus=tuple(map(str, range(gpus))), cores=cores, memory_gib=memory)
    assert at_once_words(needs, there) == words

"""The places of a machine: never more than it has, in the order in which they were asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.planning.places import Machine, Need, Place, Places, is_ever_shared, num_begun, why_alone

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


def check(machine: Machine, taken: list[Place]) -> None:
    """Nobody has what another one has, and all together no more than there is."""
    gpus = [gpu for place in taken for gpu in place.gpus]
    assert len(set(gpus)) == len(gpus) and set(gpus) <= set(machine.gpus)
    if any(place.has_all for place in taken):
        assert len(taken) == 1 and taken[0].variables == {}
        return
    for place in taken:
        assert len(place.gpus) == place.need.gpus
        assert place.variables == ({"CUDA_VISIBLE_DEVICES": ",".join(place.gpus)} if place.gpus else {})
    assert sum(place.need.cores for place in taken) <= machine.cores
    assert sum(place.need.memory_gib for place in taken) <= machine.memory_gib


@given(machine=MACHINES, needs=st.lists(NEEDS, max_size=12), data=st.data())
def test_every_run_starts_in_its_order_and_no_part_of_the_machine_is_given_twice(
    machine: Machine, needs: list[Need], data: st.DataObject
) -> None:
    """Whichever run ends next: a run that has no place gets one at the latest when it alone is left."""
    places, taken, most = Places(machine), [], 0
    for need in needs:
        while (place := places.take(need)) is None:
            assert taken, "nobody has a part of the machine, and still there is no place"
            ended = taken.pop(data.draw(st.integers(0, len(taken) - 1), label="ends"))
            places.give_back(ended)
        taken.append(place)
        most = max(most, len(taken))
        check(machine, taken)
        assert place.has_all == (why_alone(need, machine) is not None)
    assert most <= 1 or is_ever_shared(needs, machine)


@given(machine=MACHINES, needs=st.lists(NEEDS, min_size=1, max_size=8))
def test_two_neighbours_that_fit_are_begun_together(machine: Machine, needs: list[Need]) -> None:
    assert num_begun(needs, machine) >= 1
    assert is_ever_shared(needs, machine) == any(
        num_begun(needs[first:], machine) > 1 for first in range(len(needs) - 1)
    )


def test_gpus_are_given_in_their_order_and_again_when_they_are_free() -> None:
    places = Places(Machine(gpus=("3", "GPU-7f", "1"), cores=1, memory_gib=64.0))
    two, one = (Need(gpus=count, memory_gib=8.0) for count in (2, 1))
    first = places.take(two)
    assert first is not None and first.variables == {"CUDA_VISIBLE_DEVICES": "3,GPU-7f"}
    assert places.take(two) is None
    second = places.take(one)
    assert second is not None and second.gpus == ("1",) and places.take(one) is None
    places.give_back(first)
    third = places.take(one)
    assert third is not None and third.gpus == ("3",)


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
def test_what_cannot_share_the_machine_says_why(need: Need, why: str | None) -> None:
    said = why_alone(need, Machine(gpus=("0", "1"), cores=4, memory_gib=64.0))
    assert said is None if why is None else said is not None and why in said

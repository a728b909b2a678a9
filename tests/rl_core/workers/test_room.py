"""Workers take the most room that machines have left, the same on each."""

from hypothesis import given
from hypothesis import strategies as st

from rl_core.workers.cluster_machines import Room, most_room


@given(
    free=st.lists(st.integers(0, 9), max_size=5),
    wanted=st.builds(Room, nodes=st.integers(1, 5), devices=st.integers(1, 8)),
    multiple_of=st.integers(1, 4),
    of_devices=st.integers(1, 3),
)
def test_the_room_is_there_and_no_larger_one_is(free, wanted, multiple_of, of_devices):
    found = most_room(free, wanted, multiple_of=multiple_of, multiple_of_devices=of_devices)
    fitting = [
        Room(nodes=nodes, devices=devices)
        for nodes in range(1, wanted.nodes + 1)
        for devices in range(of_devices, wanted.devices + 1, of_devices)
        if sum(of_machine >= devices for of_machine in free) >= nodes and nodes * devices % multiple_of == 0
    ]
    assert (found is None) == (fitting == [])
    assert found is None or found in fitting
    assert found is None or found.workers == max(room.workers for room in fitting)

"""How many workers fit on machines of which some are gone, or in use. Each machine of a run has the same number."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """Room for workers: on `nodes` machines, `devices` on each."""

    nodes: int
    devices: int

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self.nodes * self.devices


def most_room(free: Sequence[int], wanted: Room, *, multiple_of: int, multiple_of_devices: int = 1) -> Room | None:
    """The room for the most workers, and of equal ones that on the fewest machines; None if there is none.

    Args:
        free: How many workers each machine has room for.
        wanted: The most machines, and the most workers on each of them.
        multiple_of: The number of workers is a multiple of it.
        multiple_of_devices: The number of workers on each machine is a multiple of it.
    """
    found = [
        room
        for room in _all_room(free, wanted)
        if room.workers % multiple_of == 0 and room.devices % multiple_of_devices == 0
    ]
    return max(found, key=lambda room: (room.workers, room.devices), default=None)


def _all_room(free: Sequence[int], wanted: Room) -> Iterator[Room]:
    for devices in range(1, wanted.devices + 1):
        machines = sum(of_machine >= devices for of_machine in free)
        yield from (Room(nodes=nodes, devices=devices) for nodes in range(1, min(machines, wanted.nodes) + 1))

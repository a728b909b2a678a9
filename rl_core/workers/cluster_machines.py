"""The machines of the cluster that this process has joined, and how many workers fit on them."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray._private.state import available_resources_per_node
from ray.util import client

_CONNECT_SECONDS: Final = 3.0


def is_lost(node_id: str) -> bool:
    """Whether a machine is gone: Ray says so, which it does late, or nothing listens where its part of Ray was."""
    node = next((node for node in ray.nodes() if node["NodeID"] == node_id), None)
    return node is None or not _is_there(node)


def room_on_machines(a_worker: Mapping[str, float]) -> Sequence[int]:
    """How many workers, which need resources such as `{"CPU": 1.0}`, each machine that is there has room for now."""
    free = available_resources_per_node()
    there = [node["NodeID"] for node in ray.nodes() if _is_there(node)]
    return [
        int(min(free.get(node_id, {}).get(name, 0.0) // amount for name, amount in a_worker.items()))
        for node_id in there
    ]


def _is_there(node: Mapping[str, Any]) -> bool:
    if not node["Alive"]:
        return False
    if client.ray.is_connected():  # from outside of the cluster its machines need not be reachable
        return True
    try:
        socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """Room for workers: on `nodes` machines, the same number of `devices` on each."""

    nodes: int
    devices: int

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self.nodes * self.devices


def most_room(free: Sequence[int], wanted: Room, *, multiple_of: int, multiple_of_devices: int = 1) -> Room | None:
    """The room for the most workers, up to `wanted`, and of equal ones that on the fewest machines; None if there is
    none. Machine k has room for `free[k]` workers. The number of workers is a multiple of `multiple_of`, and that on
    each machine of `multiple_of_devices`."""
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

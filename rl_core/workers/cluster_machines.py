"""The machines of the cluster that this process has joined, as they are now; Ray itself notices a loss late."""

import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ray
from ray._private.state import available_resources_per_node
from ray.util import client

_CONNECT_SECONDS: Final = 3.0


def is_lost(node_id: str) -> bool:
    """Whether a machine is gone: Ray says so, or nothing listens where its part of Ray was."""
    node = next((node for node in ray.nodes() if node["NodeID"] == node_id), None)
    return node is None or not _is_there(node)


def room_on_machines(a_worker: Mapping[str, float]) -> Sequence[int]:
    """How many workers each machine that is there has room for now.

    Args:
        a_worker: The resources that a worker needs, such as `{"CPU": 1.0}`.
    """
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

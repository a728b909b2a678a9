"""The network interface over which the ranks talk."""

import os
import socket
from collections.abc import MutableMapping
from urllib.parse import urlsplit

import psutil

from rl_core.distributed.place import RankPlace


def choose_interface(place: RankPlace, environment: MutableMapping[str, str] = os.environ) -> None:
    """Set the environment variables that say where gloo, NCCL and vLLM listen, unless they are set. None of them asks
    who connects. So the ranks of one machine use its loopback, and ranks of several machines the interface over which
    the meeting address is reached."""
    if place.size == place.ranks_per_node:
        interface, address = "lo", "127.0.0.1"
    else:
        address = own_address(urlsplit(place.meeting).hostname or "")
        interface = interface_of(address)
    for name, value in (
        ("GLOO_SOCKET_IFNAME", interface),
        ("NCCL_SOCKET_IFNAME", interface),
        ("VLLM_HOST_IP", address),
    ):
        environment.setdefault(name, value)


def free_meeting(address: str) -> str:
    """Where processes can meet at this address of this machine (`tcp://host:port`). The port is free now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return f"tcp://{address}:{probe.getsockname()[1]}"


def own_address(host: str) -> str:
    """This machine's address on the route to `host`. Nothing is sent. Raises OSError if there is no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return str(probe.getsockname()[0])


def interface_of(address: str) -> str:
    """The name of the interface with this IPv4 address. Raises ValueError if no interface has it."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(found.address == address for found in addresses):
            return name
    raise ValueError(f"no network interface has the address {address}: set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME")

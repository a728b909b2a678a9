"""How fast the devices of this machine add up a large tensor: NCCL between GPUs, gloo between processes of a CPU."""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

import torch
import torch.distributed
from torch.multiprocessing.spawn import spawn

from rl_core.device import computing_device, device_name, finish_kernels, take_device
from rl_core.distributed.interface import choose_interface, free_meeting
from rl_core.distributed.place import RankPlace
from rl_core.planning.gpu import card_named
from tasks.device_check.check import Finding, Setting, compared

_REPEATS: Final = 5
_BYTES: Final = {"cuda": 2**30, "cpu": 2**24}
"""Bytes of the tensor: gradients of half a billion weights on a GPU."""

_MOST_SHARE: Final = 2.0
"""Share of the data sheet's rate above which a speed is impossible: switches that add up (NVLink SHARP) save up to half
of what a ring sends."""


def bandwidth_findings(setting: Setting) -> Iterator[Finding]:
    """The rate of an all-reduce over all devices, and that its sum is right."""
    meeting, answer = free_meeting("127.0.0.1"), setting.folder / "answer"
    spawn(_add_up, args=(setting.devices, meeting, answer), nprocs=setting.devices)
    seconds, is_right = answer.read_text().split()
    device = computing_device()
    num_bytes = _BYTES[device.type]
    rate = 2 * (setting.devices - 1) / setting.devices * num_bytes / float(seconds)
    card = card_named(device_name(device))
    sheet = "" if card is None else f"; the link's data sheet says {card.link / 1e9:.0f} GB/s"
    is_possible = card is None or rate <= _MOST_SHARE * card.link
    yield compared(
        "the devices add up a tensor",
        holds=is_right == "True" and is_possible,
        measured=f"all-reduce of {num_bytes / 2**20:.0f} MiB over {setting.devices} devices: {rate / 1e9:.3g} GB/s"
        f"{sheet}{'' if is_right == 'True' else '; the sum is wrong'}",
        advice="the sum is wrong or impossibly fast: look at NCCL_DEBUG=INFO, and try NCCL_P2P_DISABLE=1",
        figures={"bytes_per_second": rate, "devices": setting.devices},
    )


def _add_up(rank: int, size: int, meeting: str, answer: Path) -> None:
    """What each process does; the first one writes the seconds, and whether the sum is right."""
    place = RankPlace(rank=rank, size=size, ranks_per_node=size, meeting=meeting)
    choose_interface(place)
    device = take_device(rank)
    backend = "nccl" if device.type == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, init_method=meeting, rank=rank, world_size=size)
    tensor = torch.empty(_BYTES[device.type] // 4, dtype=torch.float32, device=device)
    durations = []
    for _ in range(_REPEATS + 1):
        tensor.fill_(rank + 1.0)
        finish_kernels(device)
        start = time.perf_counter()
        torch.distributed.all_reduce(tensor)
        finish_kernels(device)
        durations.append(time.perf_counter() - start)
    is_right = bool((tensor == size * (size + 1) / 2).all())
    if rank == 0:
        answer.write_text(f"{median(durations[1:])} {is_right}")
    torch.distributed.destroy_process_group()

"""The speed of the devices: matrix products, copies, and sums over all of them (NCCL between GPUs, gloo between
processes of a CPU), compared with the data sheet where it is known."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Final

import torch
import torch.distributed
from torch.multiprocessing.spawn import spawn

from rl_core.device import computing_device, device_name, finish_kernels, take_device
from rl_core.distributed.interface import choose_interface, free_meeting
from rl_core.distributed.place import RankPlace
from rl_core.planning.gpu import CARDS, Card, card_named
from tasks.device_check.check import Figures, Finding, Setting, compared

_REPEATS = 5
_COPIED_BYTES = 2**28

_SLOW = 1.5
"""Times the planned seconds that are worth a look."""

_MOST_FLOPS = 10 * max(card.flops for card in CARDS.values())
"""Ten times the fastest card that is known."""

_MOST_COPIED = 2e12
"""Bytes a second: twice the link between the processors of a GH200 in both directions."""


def speed_findings(setting: Setting) -> Iterator[Finding]:
    """Speed of matrix products in each number format, and of copies to the device and back."""
    device = computing_device()
    card = card_named(device_name(device))
    size = 8192 if device.type == "cuda" else 1024
    for dtype in (torch.float32, torch.bfloat16):
        yield _product(size, dtype, device, card)
    host = torch.empty(_COPIED_BYTES, dtype=torch.uint8, pin_memory=device.type == "cuda").zero_()
    there = torch.zeros_like(host, device=device)
    where = "the GPU" if device.type == "cuda" else "another place in memory"
    yield _copy(f"copy from the host's memory to {where}", lambda: there.copy_(host, non_blocking=True), device)
    if device.type == "cuda":
        yield _copy("copy from the GPU to the host's memory", lambda: host.copy_(there, non_blocking=True), device)


def speed_finding(check: str, shown: str, *, rate: float, most: float, figures: Figures, advice: str = "") -> Finding:
    """The finding of a speed. It fails where no device can be so fast, because then nothing was computed."""
    if rate <= most:
        return Finding(check=check, verdict="measured", measured=shown, figures=figures, advice=advice)
    impossible = "no device is so fast: it computes nothing, or its clock is wrong; believe no other row"
    return Finding(check=check, verdict="fails", measured=shown, figures=figures, advice=impossible)


def seconds_against_plan(seconds: float, planned: float) -> tuple[str, str]:
    """Seconds against the plan's in words, and what to look for where they are many more."""
    advice = "slower than planned: look at the rows on speed, and whether other programs use the GPU"
    return f"{seconds:.2f} s against {planned:.2f} in the plan", advice if seconds > _SLOW * planned else ""


def _product(size: int, dtype: torch.dtype, device: torch.device, card: Card | None) -> Finding:
    matrix = torch.full((size, size), 0.01, dtype=dtype, device=device)
    rate = 2 * size**3 / _seconds(lambda: torch.mm(matrix, matrix), device)
    share = "" if card is None else f", {rate / card.flops:.0%} of the data sheet's"
    return speed_finding(
        f"matrix product of {size} x {size} in {str(dtype).removeprefix('torch.')}",
        f"{rate / 1e12:.3g} TFLOP/s{share}",
        rate=rate,
        most=_MOST_FLOPS if card is None else card.flops,
        figures={"flops": rate},
    )


def _copy(check: str, work: Callable[[], object], device: torch.device) -> Finding:
    rate = _COPIED_BYTES / _seconds(work, device)
    figures = {"bytes_per_second": rate}
    return speed_finding(check, f"{rate / 1e9:.3g} GB/s", rate=rate, most=_MOST_COPIED, figures=figures)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Median time of the work, which is done once before the clock starts."""
    durations = []
    for _ in range(_REPEATS + 1):
        start = time.perf_counter()
        work()
        finish_kernels(device)
        durations.append(time.perf_counter() - start)
    return median(durations[1:])


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

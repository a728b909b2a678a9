"""The device's speed: matrix products and copies, for comparison with the data sheet and with other machines."""

import time
from collections.abc import Callable, Iterator
from statistics import median

import torch

from tasks.device_check.finding import Finding

_REPEATS = 5
_COPIED_BYTES = 2**28


def speed_findings(device: torch.device) -> Iterator[Finding]:
    """Speed of matrix products in each number format, and of copies to the device and back."""
    size = 8192 if device.type == "cuda" else 1024
    for dtype in (torch.float32, torch.bfloat16):
        yield _product(size, dtype, device)
    host = torch.empty(_COPIED_BYTES, dtype=torch.uint8, pin_memory=device.type == "cuda").zero_()
    there = torch.zeros_like(host, device=device)
    where = "the GPU" if device.type == "cuda" else "another place in memory"
    yield _copy(f"copy from the host's memory to {where}", lambda: there.copy_(host, non_blocking=True), device)
    if device.type == "cuda":
        yield _copy("copy from the GPU to the host's memory", lambda: host.copy_(there, non_blocking=True), device)


def _product(size: int, dtype: torch.dtype, device: torch.device) -> Finding:
    matrix = torch.full((size, size), 0.01, dtype=dtype, device=device)
    seconds = _seconds(lambda: torch.mm(matrix, matrix), device)
    return Finding(
        check=f"matrix product of {size} x {size} in {str(dtype).removeprefix('torch.')}",
        verdict="measured",
        measured=f"{2 * size**3 / seconds / 1e12:.3g} TFLOP/s",
    )


def _copy(check: str, work: Callable[[], object], device: torch.device) -> Finding:
    return Finding(check=check, verdict="measured", measured=f"{_COPIED_BYTES / _seconds(work, device) / 1e9:.3g} GB/s")


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Median time of the work, which is done once before the clock starts."""
    durations = []
    for _ in range(_REPEATS + 1):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        durations.append(time.perf_counter() - start)
    return median(durations[1:])

"""Which GPU this machine has."""

import os
import shutil
import subprocess
from typing import NamedTuple


class Gpu(NamedTuple):
    """One GPU: of this machine, or of another one that is planned for."""

    memory_gib: float | None
    """Its memory in GiB; None where the driver does not tell, as for a device that shares the machine's memory."""
    is_elsewhere: bool = False
    """Whether it is planned for and not here; then nothing is known of the memory and the disk of its machine."""


def find_gpu() -> Gpu | None:
    """The first NVIDIA GPU; None where there is none, or CUDA_VISIBLE_DEVICES hides all of them. The driver is asked,
    because importing torch would take seconds."""
    if shutil.which("nvidia-smi") is None or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return None
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    first = asked.stdout.strip().partition("\n")[0].strip()
    if asked.returncode != 0:
        return None
    if first.startswith("["):  # [N/A] or [Insufficient Permissions]: a GPU whose memory is not known
        return Gpu(memory_gib=None)
    return Gpu(memory_gib=float(first) / 1024) if first.isdecimal() else None  # else: No devices were found

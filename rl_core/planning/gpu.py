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
    name: str = ""
    """Its name as the driver has it, such as NVIDIA H200; empty where it is not known."""


def find_gpu() -> Gpu | None:
    """The first NVIDIA GPU; None where there is none, or CUDA_VISIBLE_DEVICES hides all of them. The driver is asked,
    because importing torch would take seconds."""
    if shutil.which("nvidia-smi") is None or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return None
    command = ["nvidia-smi", "--query-gpu=memory.total,name", "--format=csv,noheader,nounits"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    memory, _, name = asked.stdout.strip().partition("\n")[0].partition(",")
    if asked.returncode != 0:
        return None
    if memory.startswith("["):  # [N/A] or [Insufficient Permissions]: a GPU whose memory is not known
        return Gpu(memory_gib=None, name=name.strip())
    if not memory.strip().isdecimal():  # No devices were found
        return None
    return Gpu(memory_gib=float(memory) / 1024, name=name.strip())

"""Which GPU this machine has."""

import os
import shutil
import subprocess

from rl_core.planning.memory import Gpu


def find_gpu() -> Gpu | None:
    """The first NVIDIA GPU; None without one, or where CUDA_VISIBLE_DEVICES hides all. Asks the driver: importing torch
    would take seconds."""
    if shutil.which("nvidia-smi") is None or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return None
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    first = asked.stdout.strip().partition("\n")[0].strip()
    if asked.returncode != 0:
        return None
    if first.startswith("["):  # [N/A], [Insufficient Permissions]: there is a GPU, and this is not known of it
        return Gpu(memory_gib=None)
    return Gpu(memory_gib=float(first) / 1024) if first.isdecimal() else None  # else: No devices were found

"""Which GPU this machine has."""

import os
import shutil
import subprocess
from typing import NamedTuple

from rl_core.config.cluster import WorkerDevice


class Gpu(NamedTuple):
    """One GPU: of this machine, or of another one that is planned for."""

    memory_gib: float | None
    """Its memory in GiB; None where the driver does not tell, as for a device that shares the machine's memory, or one
    that is divided (MIG)."""
    is_elsewhere: bool = False
    """Whether it is planned for and not here; then nothing is known of the memory and the disk of its machine."""
    name: str = ""
    """Its name as the driver has it, such as NVIDIA H200; empty where it is not known."""


def find_gpu(device: WorkerDevice = "auto") -> Gpu | None:
    """The first NVIDIA GPU; None where there is none, CUDA_VISIBLE_DEVICES hides all of them, or `device`
    (cluster.device) says that workers compute on the CPU. The driver is asked, because importing torch would take
    seconds."""
    if device == "cpu" or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return None
    first = next(iter(_driver_says("memory.total,name,mig.mode.current")), "")
    memory, name, mig, *_ = (*(field.strip() for field in first.split(",")), "", "")
    # [N/A] or [Insufficient Permissions] is a GPU whose memory is not known. If it is divided, torch sees one of its
    # parts, and the driver tells the memory of the whole.
    if memory.startswith("[") or (memory.isdecimal() and mig == "Enabled"):
        return Gpu(memory_gib=None, name=name)
    if not memory.isdecimal():  # No devices were found
        return None
    return Gpu(memory_gib=float(memory) / 1024, name=name)


def visible_gpus() -> tuple[str, ...]:
    """The NVIDIA GPUs that this process may use, each as CUDA_VISIBLE_DEVICES names it: by the numbers or names in this
    variable, else by the numbers of all. A process uses one part of divided GPUs (MIG), so all of them count as one
    unless the variable names their parts."""
    modes = [mode.strip() for mode in _driver_says("mig.mode.current") if not mode.startswith("No devices")]
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    named = list(map(str, range(len(modes)))) if asked is None else [name.strip() for name in asked.split(",")]
    # As in CUDA, nothing counts from the first name on that is none.
    hidden = next((place for place, name in enumerate(named) if not _is_there(name, len(modes))), len(named))
    gpus = tuple(dict.fromkeys(named[:hidden]))
    is_divided = "Enabled" in modes and all(gpu.isdecimal() for gpu in gpus)
    return gpus[:1] if is_divided else gpus


def _is_there(name: str, there: int) -> bool:
    """Whether a GPU of this number or name may be among `there` GPUs."""
    return there > 0 and (int(name) < there if name.isdecimal() else name.startswith(("GPU-", "MIG-")))


def driver_version() -> str | None:
    """The version of the NVIDIA driver, such as 580.95.05; None where there is none."""
    version = next(iter(_driver_says("driver_version")), "").strip()
    return version if version.partition(".")[0].isdecimal() else None


def free_gpu_memory() -> list[float]:
    """GiB that are free now on each NVIDIA GPU of this machine, visible or not, as far as the driver tells."""
    return [float(memory) / 1024 for memory in _driver_says("memory.free") if memory.strip().isdecimal()]


def _driver_says(query: str) -> list[str]:
    """What nvidia-smi answers, a line for each GPU; nothing where there is no driver."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return asked.stdout.strip().splitlines() if asked.returncode == 0 else []

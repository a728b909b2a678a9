"""The device that torch computes on in this process: which one it is, and its name for records and messages."""

from typing import TYPE_CHECKING

from rl_core.cpu_switches import CPU_MODEL, is_on
from rl_core.environment import threads_of_a_worker

if TYPE_CHECKING:
    import torch

# Records and configs are read without torch, so it is imported where it is needed.


def computing_device() -> "torch.device":
    """The GPU, if torch sees one, else the CPU."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def takes_cpu_code(switch: str) -> bool:
    """Whether this process computes on a CPU, and with the code for it that this switch stands for."""
    return computing_device().type == "cpu" and is_on(switch)


def take_device(local_rank: int) -> "torch.device":
    """The device of one of several processes of a machine, which take its GPUs in turn and make it torch's current
    one."""
    import torch

    device = computing_device()
    if device.type == "cuda":
        torch.cuda.set_device(local_rank % torch.cuda.device_count())
    return device


def take_threads(workers: int, *, fixed: int | None) -> None:
    """From now on, compute on the CPU with the threads of a worker. Unless the number is set, torch takes no more
    threads than the machine has cores, whatever OMP_NUM_THREADS says."""
    import torch

    torch.set_num_threads(threads_of_a_worker(workers, fixed=fixed))


def finish_kernels(device: "torch.device") -> None:
    """Wait until a GPU has computed what it was given, so that a clock read next belongs to it."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: "torch.device") -> str:
    """The name of the card, or "CPU"."""
    import torch

    return "CPU" if device.type == "cpu" else torch.cuda.get_device_name(device)


def cpu_words(threads: int) -> str:
    """A CPU and what decides the last bits of its numbers: its threads, and which code models compute with."""
    return f"CPU with {threads} thread(s)" + ("" if is_on(CPU_MODEL) else f", {CPU_MODEL}=0")

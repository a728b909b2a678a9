"""Which GPU this machine has, what is published of its kind, and which attention the trainer uses on it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Final, Literal, NamedTuple

from rl_core.config.cluster import WorkerDevice
from rl_core.config.model import ModelConfig
from rl_core.problem import Problem


class Gpu(NamedTuple):
    """One GPU: of this machine, or of another one that is planned for."""

    memory_gib: float | None
    """Its memory in GiB; None where the driver does not report it, as for one that is divided (MIG)."""
    is_elsewhere: bool = False
    """Whether it is planned for and not here; then nothing is known of the memory and the disk of its machine."""
    name: str = ""
    """Its name as the driver has it, such as NVIDIA H200; empty where it is not known."""


def find_gpu(device: WorkerDevice = "auto") -> Gpu | None:
    """The first NVIDIA GPU, as the driver says, because importing torch would take seconds; None where none may be
    used, or `device` (cluster.device) is the CPU."""
    if device == "cpu" or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return None
    first = next(iter(_query_driver("memory.total,name,mig.mode.current")), "")
    memory, name, mig, *_ = (*(field.strip() for field in first.split(",")), "", "")
    # [N/A] or [Insufficient Permissions] is a GPU whose memory is not known. If it is divided, torch sees one of its
    # parts, and the driver gives the memory of the whole.
    if memory.startswith("[") or (memory.isdecimal() and mig == "Enabled"):
        return Gpu(memory_gib=None, name=name)
    if not memory.isdecimal():  # No devices were found
        return None
    return Gpu(memory_gib=float(memory) / 1024, name=name)


def visible_gpus() -> tuple[str, ...]:
    """The NVIDIA GPUs that this process may use, each as CUDA_VISIBLE_DEVICES names it: by the numbers or names in this
    variable, else by the numbers of all. A process uses one part of divided GPUs (MIG), so all of them count as one
    unless the variable names their parts."""
    modes = [mode.strip() for mode in _query_driver("mig.mode.current") if not mode.startswith("No devices")]
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
    version = next(iter(_query_driver("driver_version")), "").strip()
    return version if version.partition(".")[0].isdecimal() else None


def free_gpu_memory() -> list[float]:
    """GiB that are free now on each NVIDIA GPU of this machine, visible or not, as far as the driver knows."""
    return [float(memory) / 1024 for memory in _query_driver("memory.free") if memory.strip().isdecimal()]


def _query_driver(query: str) -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return asked.stdout.strip().splitlines() if asked.returncode == 0 else []


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """A kind of GPU: its name and its memory as the driver has them, the bytes a second that it reads from its memory,
    its floating-point operations a second with dense bfloat16 matrices, and the bytes a second that it sends to another
    GPU."""

    name: str
    memory_gib: float
    bandwidth: float
    flops: float
    link: float


CARDS: Final = {
    "a100-40": Card(name="NVIDIA A100-SXM4-40GB", memory_gib=39.6, bandwidth=1.555e12, flops=312e12, link=300e9),
    "a100": Card(name="NVIDIA A100-SXM4-80GB", memory_gib=79.6, bandwidth=2.039e12, flops=312e12, link=300e9),
    "h100": Card(name="NVIDIA H100 80GB HBM3", memory_gib=79.6, bandwidth=3.35e12, flops=989e12, link=450e9),
    "h200": Card(name="NVIDIA H200", memory_gib=140.4, bandwidth=4.8e12, flops=989e12, link=450e9),
    "l40s": Card(name="NVIDIA L40S", memory_gib=45.0, bandwidth=0.864e12, flops=362e12, link=32e9),
}
"""[name on the command line] -> the card. The figures are those of NVIDIA's data sheets: A100 80GB and A100 (2021),
H100 (SXM, 2023), H200 (2024), L40S (2023). They give arithmetic with and without sparsity, here it is without; and
NVLink (PCIe 4.0 for the L40S) in both directions together, here it is one of them."""

UNLISTED: Final = Card(name="", memory_gib=0.0, bandwidth=1e10, flops=1e10, link=1e10)
"""A CPU, or a GPU that is not in CARDS. Only the proportions count, those of a core of a CPU: what it computes takes
longer than what it moves."""


def card_named(driver_name: str) -> Card | None:
    """The card that the driver calls by this name; None where its figures are not known."""
    return next((card for card in CARDS.values() if card.name == driver_name), None)


Backend = Literal["sdpa", "varlen", "flash"]


class AttentionChoice(NamedTuple):
    """The attention kernel of a trainer, and the reason in words."""

    backend: Backend
    why: str


def attention_problems(model: ModelConfig, *, has_gpu: bool) -> Iterator[Problem]:
    """A problem where `model.attention` names a kernel that cannot be used here."""
    missing = {"flash": _missing_for_flash, "varlen": _missing_for_varlen}
    if model.attention in missing and (reason := missing[model.attention](model, has_gpu=has_gpu)) is not None:
        yield Problem("model.attention", f"it is {model.attention!r}, but {reason}", "set it to 'auto' or 'sdpa'")


def attention_choice(model: ModelConfig, *, has_gpu: bool) -> AttentionChoice:
    """The kernel of a configuration without problems. `auto` takes flash-attn where it can be imported, then PyTorch's
    kernel for sequences of different lengths; both need a GPU and half precision."""
    if model.attention != "auto":
        return AttentionChoice(model.attention, "as configured")
    no_flash = _missing_for_flash(model, has_gpu=has_gpu)
    if no_flash is None:
        return AttentionChoice("flash", "auto: flash-attn is installed")
    no_varlen = _missing_for_varlen(model, has_gpu=has_gpu)
    if no_varlen is None:
        return AttentionChoice("varlen", f"auto: {no_flash}")
    return AttentionChoice("sdpa", f"auto: {no_varlen}")


def _missing_for_flash(model: ModelConfig, *, has_gpu: bool) -> str | None:
    return _missing_for_varlen(model, has_gpu=has_gpu) or _missing_package()


def _missing_for_varlen(model: ModelConfig, *, has_gpu: bool) -> str | None:
    if not has_gpu:
        return "there is no NVIDIA GPU"
    if model.dtype == "float32":
        return "there are no float32 kernels for it, and model.dtype is 'float32'"
    return None


def _missing_package() -> str | None:
    package = find_spec("flash_attn")
    if package is None:
        return "flash-attn is not installed (extra `flash`)"
    error = _import_error(str(package.origin))
    return None if error is None else f"flash-attn is installed, but not for this Python and PyTorch: {error}"


@cache
def _import_error(file: str) -> str | None:
    """The last line of the error of flash-attn's import, whose compiled part fits one version of PyTorch only; None if
    it can be imported. Tried in another process, because it imports torch."""
    command = [sys.executable, "-c", "from flash_attn import flash_attn_varlen_func"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return tried.stderr.strip().rpartition("\n")[2] if tried.returncode else None

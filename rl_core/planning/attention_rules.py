"""Which attention the trainer uses on a machine, and why."""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Literal, NamedTuple

from rl_core.config.model import ModelConfig
from rl_core.problem import Problem

Backend = Literal["sdpa", "varlen", "flash"]


class AttentionChoice(NamedTuple):
    """The chosen kernel, and the reason in words."""

    backend: Backend
    why: str


def attention_problems(model: ModelConfig, *, has_gpu: bool) -> Iterator[Problem]:
    """A problem where `model.attention` names a kernel that cannot be used here."""
    missing = {"flash": missing_for_flash, "varlen": missing_for_varlen}
    if model.attention in missing:
        reason = missing[model.attention](model, has_gpu=has_gpu)
        if reason is not None:
            what = f"it is {model.attention!r}, but {reason}"
            yield Problem(where="model.attention", what=what, fix="set it to 'auto' or 'sdpa'")


def attention_choice(model: ModelConfig, *, has_gpu: bool) -> AttentionChoice:
    """The kernel of a configuration without problems. `auto` takes flash-attn where it can be imported, then PyTorch's
    kernel for sequences of different lengths; both need a GPU and half precision."""
    if model.attention != "auto":
        return AttentionChoice(model.attention, "as configured")
    no_flash = missing_for_flash(model, has_gpu=has_gpu)
    if no_flash is None:
        return AttentionChoice("flash", "auto: flash-attn is installed")
    no_varlen = missing_for_varlen(model, has_gpu=has_gpu)
    if no_varlen is None:
        return AttentionChoice("varlen", f"auto: {no_flash}")
    return AttentionChoice("sdpa", f"auto: {no_varlen}")


def missing_for_flash(model: ModelConfig, *, has_gpu: bool) -> str | None:
    """Why flash-attn cannot be used; None where it can."""
    return missing_for_varlen(model, has_gpu=has_gpu) or _missing_package()


def missing_for_varlen(model: ModelConfig, *, has_gpu: bool) -> str | None:
    """Why kernels for sequences of different lengths cannot be used; None where they can."""
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
    """The last line of the error with which flash-attn's import from this file ends, as its compiled part fits one
    version of PyTorch only; None if it can be imported. Tried in another process, because it imports torch."""
    command = [sys.executable, "-c", "from flash_attn import flash_attn_varlen_func"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode == 0:
        return None
    return (tried.stderr.strip().splitlines() or [f"its import ended with status {tried.returncode}"])[-1]

"""Which attention the trainer uses on a machine, and why."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Literal, NamedTuple

from rl_core.config.model import ModelConfig
from rl_core.planning.problem import Problem

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
    """The kernel of a configuration without problems. `auto` takes flash-attn where it is installed, then PyTorch's
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
    if has_gpu and find_spec("flash_attn") is None:
        return "flash-attn is not installed (extra `flash`)"
    return missing_for_varlen(model, has_gpu=has_gpu)


def missing_for_varlen(model: ModelConfig, *, has_gpu: bool) -> str | None:
    """Why kernels for sequences of different lengths cannot be used; None where they can."""
    if not has_gpu:
        return "there is no NVIDIA GPU"
    if model.dtype == "float32":
        return "there are no float32 kernels for it, and model.dtype is 'float32'"
    return None

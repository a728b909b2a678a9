"""Whether the attention kernels of flash-attn can be used."""

from collections.abc import Iterator
from importlib.util import find_spec

from rl_core.config.model import ModelConfig
from rl_core.planning.problem import Problem


def attention_problems(model: ModelConfig, *, has_gpu: bool) -> Iterator[Problem]:
    """A problem where the config asks for `model.attention: flash` and flash-attn cannot be used."""
    missing = missing_for_flash(model, has_gpu=has_gpu)
    if model.attention == "flash" and missing is not None:
        yield Problem(where="model.attention", what=f"it is 'flash', but {missing}", fix="set it to 'auto' or 'sdpa'")


def missing_for_flash(model: ModelConfig, *, has_gpu: bool) -> str | None:
    """Why flash-attn cannot be used; None where it can."""
    if not has_gpu:
        return "there is no NVIDIA GPU"
    if find_spec("flash_attn") is None:
        return "flash-attn is not installed (extra `flash`)"
    if model.dtype == "float32":
        return "flash-attn has no float32 kernels and model.dtype is 'float32'"
    return None

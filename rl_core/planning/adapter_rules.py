"""Whether the layers that `model.lora` names are there, and can be adapted."""

from collections.abc import Iterator

from rl_core.config.model import LoraConfig
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.module_names import module_names
from rl_core.planning.problem import Problem
from rl_core.planning.training_state import is_adapted

_SHOWN = 3
_FIX = "set it to all-linear, or name some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj"


def adapter_problems(lora: LoraConfig, sizes: ModelSizes) -> Iterator[Problem]:
    """Targets that match nothing, or something that is no linear layer."""
    names = module_names(sizes)
    wrong = sorted(name for name in names.others if lora.target_modules != "all-linear" and is_adapted(name, lora))
    if wrong:
        shown = ", ".join(wrong[:_SHOWN]) + (", ..." if len(wrong) > _SHOWN else "")
        yield Problem(
            where="model.lora.target_modules",
            what=f"{_told(lora)} matches {shown}: embeddings, the output head, norms and blocks cannot be adapted",
            fix=_FIX,
        )
    elif not any(is_adapted(name, lora) for name in names.linear):
        yield Problem(
            where="model.lora.target_modules",
            what=f"{_told(lora)} matches no linear layer of the model",
            fix=_FIX,
        )


def _told(lora: LoraConfig) -> str:
    excluded = "" if lora.exclude_modules is None else f" without exclude_modules {lora.exclude_modules!r}"
    return f"{lora.target_modules!r}{excluded}"

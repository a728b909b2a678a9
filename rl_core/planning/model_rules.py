"""Rules between a config and the sizes of its model: parts that it does not have, adapters, and layers that cannot be
divided."""

from collections.abc import Callable, Iterator
from typing import Final

from rl_core.config.model import LoraConfig, ModelConfig, TinyModel
from rl_core.config.run import RunConfig
from rl_core.planning.batches import longest_sequence
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.training_state import is_adapted
from rl_core.problem import Problem
from rl_core.wording import shortened

VLLM_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks for which vLLM reserves memory; an adapter may have a lower one (vllm.config.lora.MaxLoRARanks)."""

_CPU_HEAD_SIZES: Final = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""What vLLM 0.32 has attention kernels for on a CPU (get_supported_head_sizes in its cpu_attn.py)."""

_SHOWN = 3
_VISION = ".visual."
_FIX = "set it to all-linear, or name some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj"


def model_problems(config: RunConfig, sizes: ModelSizes, *, on_gpu: bool) -> Iterator[Problem]:
    """Every rule that a config with a model of these sizes breaks."""
    model = config.model
    if model.freeze_vision_tower and not sizes.vision_parameters:
        yield Problem(
            "model.freeze_vision_tower",
            "the model has no vision tower",
            "set it to false, or take a vision-language model",
        )
    if model.lora is not None:
        yield from adapter_problems(model.lora, sizes)
    yield from _kernel_problems(model, sizes, on_gpu=on_gpu)
    yield from division_problems(config, sizes)
    longest = longest_sequence(config)
    if longest > sizes.max_positions:
        yield Problem(
            "rollout.max_response_length",
            f"a prompt of {config.data.max_prompt_length} and a response of {config.rollout.max_response_length} "
            f"tokens are {longest} together, more than the model's {sizes.max_positions} positions",
            f"lower data.max_prompt_length or rollout.max_response_length by {longest - sizes.max_positions} in all",
        )


def adapter_problems(lora: LoraConfig, sizes: ModelSizes) -> Iterator[Problem]:
    """Targets that match no layer, or something other than a linear layer, or that vLLM has no adapters for."""
    others = () if lora.target_modules == "all-linear" else sizes.other_modules
    wrong = sorted(name for name in others if is_adapted(name, lora))
    if wrong:
        shown = ", ".join(wrong[:_SHOWN]) + (", ..." if len(wrong) > _SHOWN else "")
        what = f"{_targets(lora)} matches {shown}: embeddings, the output head, norms and blocks cannot be adapted"
        yield Problem("model.lora.target_modules", what, _FIX)
    elif not any(is_adapted(name, lora) for name in sizes.linear_layers):
        yield Problem("model.lora.target_modules", f"{_targets(lora)} matches no linear layer of the model", _FIX)
    elif lora.generator_weights == "separate":
        yield from _separate_problems(lora, sizes)


def _separate_problems(lora: LoraConfig, sizes: ModelSizes) -> Iterator[Problem]:
    where, fix = "model.lora.generator_weights", "set it to merged"
    if lora.rank > VLLM_RANKS[-1]:
        what = f"vLLM has adapters of rank {VLLM_RANKS[-1]} at most, and model.lora.rank is {lora.rank}"
        yield Problem(where, what, f"{fix}, or lower model.lora.rank")
    seeing = [name for name in sizes.linear_layers if _VISION in name and is_adapted(name, lora)]
    if seeing:
        what = f"vLLM has no adapters in a vision tower, and {_targets(lora)} matches {', '.join(seeing[:_SHOWN])}"
        yield Problem(where, what, f'{fix}, or model.lora.exclude_modules to ".*visual.*"')


def _targets(lora: LoraConfig) -> str:
    excluded = "" if lora.exclude_modules is None else f" without exclude_modules {_shown(lora.exclude_modules)}"
    return f"{_shown(lora.target_modules)}{excluded}"


def _shown(modules: str | tuple[str, ...]) -> str:
    return repr(shortened(modules)) if isinstance(modules, str) else shortened(str(modules))


def _kernel_problems(model: ModelConfig, sizes: ModelSizes, *, on_gpu: bool) -> Iterator[Problem]:
    """A head size or a number format for which vLLM has no kernel on this machine."""
    if on_gpu and model.dtype == "float32" and model.generator_lora is not None:
        yield Problem(
            "model.lora.generator_weights",
            "on a GPU vLLM has kernels for adapters in 16 bits only, and model.dtype is float32",
            "set it to merged, or model.dtype to bfloat16",
        )
    if on_gpu or sizes.head_size in _CPU_HEAD_SIZES:
        return
    known = ", ".join(map(str, _CPU_HEAD_SIZES))
    what = f"attention heads of width {sizes.head_size}, and vLLM has kernels for a CPU for {known} only"
    if isinstance(model.source, TinyModel):
        fix = "change it, or model.source.num_heads, so that hidden_size / num_heads is one of them"
        yield Problem("model.source.hidden_size", f"it makes {what}", fix)
    else:
        yield Problem("model.source.path", f"it has {what}", "take another model, or a GPU")


def division_problems(config: RunConfig, sizes: ModelSizes) -> Iterator[Problem]:
    """Heads and layers that the workers of a sequence, or of a generator, cannot share equally."""
    divisions: tuple[tuple[str, int, Callable[[ModelSizes, int], str | None]], ...] = (
        ("cluster.sequence_parallel_size", config.cluster.sequence_parallel_size, _why_heads_not_shared),
        ("cluster.tensor_parallel_size", config.cluster.tensor_parallel_size, _why_layers_not_shared),
    )
    for key, ranks, why_not in divisions:
        if (why := why_not(sizes, ranks)) is not None:
            fitting = [f"{size}" for size in range(1, sizes.heads + 1) if why_not(sizes, size) is None]
            yield Problem(key, why, f"set it to one of {', '.join(fitting)}")


def why_not_shared(heads: int, key_value_heads: int, ranks: int) -> str | None:
    """Why the attention heads of a model cannot be shared by this many ranks, in words; None if they can."""
    if heads % ranks:
        return f"{heads} attention heads cannot be shared equally by {ranks} ranks"
    if key_value_heads % ranks and ranks % key_value_heads:
        return f"neither of {key_value_heads} key/value heads and {ranks} ranks is a multiple of the other"
    return None


def _why_heads_not_shared(sizes: ModelSizes, ranks: int) -> str | None:
    return why_not_shared(sizes.heads, sizes.key_value_heads, ranks)


def _why_layers_not_shared(sizes: ModelSizes, ranks: int) -> str | None:
    """Why vLLM cannot divide the layers of a model; None if it can."""
    if sizes.vision_heads % ranks:
        return f"{sizes.vision_heads} attention heads of the vision tower cannot be shared equally by {ranks} ranks"
    if sizes.intermediate_size % ranks:
        return f"feed-forward layers of width {sizes.intermediate_size} cannot be shared equally by {ranks} ranks"
    return _why_heads_not_shared(sizes, ranks)

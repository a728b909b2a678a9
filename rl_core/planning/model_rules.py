"""Rules between the model's sizes, its number format, the part of it that is trained, and the optimizer."""

from collections.abc import Iterator

from rl_core.config.model import ModelConfig, TinyModel
from rl_core.config.run import RunConfig
from rl_core.planning.adapter_rules import adapter_problems
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.tiny_model import tiny_size_problems
from rl_core.problem import Problem

# What vLLM 0.32 has attention kernels for on a CPU (get_supported_head_sizes in its cpu_attn.py).
_CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


def model_problems(config: RunConfig) -> Iterator[Problem]:
    """Every rule that the config breaks and that can be checked without the model's sizes."""
    if isinstance(config.model.source, TinyModel):
        yield from tiny_size_problems(config.model.source)
    yield from _contradictions(config)
    yield from _strategy_problems(config)


def missing_part_problems(model: ModelConfig, sizes: ModelSizes) -> list[Problem]:
    """Parts of the model that the config freezes or adapts and that the model does not have."""
    problems = []
    if model.freeze_vision_tower and not sizes.vision_parameters:
        problems.append(
            Problem(
                where="model.freeze_vision_tower",
                what="the model has no vision tower",
                fix="set it to false, or take a vision-language model",
            )
        )
    if model.lora is not None:
        problems += adapter_problems(model.lora, sizes)
    return problems


def engine_problems(model: ModelConfig, sizes: ModelSizes, *, on_gpu: bool) -> Iterator[Problem]:
    """A head size or a number format for which vLLM has no kernel on this machine."""
    if on_gpu and model.dtype == "float32" and model.generator_lora is not None:
        what = "on a GPU vLLM has kernels for adapters in 16 bits only, and model.dtype is float32"
        yield Problem(
            where="model.lora.generator_weights", what=what, fix="set it to merged, or model.dtype to bfloat16"
        )
    if on_gpu or sizes.head_size in _CPU_HEAD_SIZES:
        return
    known = ", ".join(map(str, _CPU_HEAD_SIZES))
    what = f"attention heads of width {sizes.head_size}, and vLLM has kernels for a CPU for {known} only"
    if isinstance(model.source, TinyModel):
        fix = "change it, or model.source.num_heads, so that hidden_size / num_heads is one of them"
        yield Problem(where="model.source.hidden_size", what=f"it makes {what}", fix=fix)
    else:
        yield Problem(where="model.source.path", what=f"it has {what}", fix="take another model, or a GPU")


def _contradictions(config: RunConfig) -> Iterator[Problem]:
    model = config.model
    if model.lora is not None and model.freeze_vision_tower:
        yield Problem(
            where="model.freeze_vision_tower",
            what="model.lora freezes every weight, and its exclude_modules says where no adapters are",
            fix="set it to false; the default of model.lora.exclude_modules leaves the vision tower alone",
        )


def _strategy_problems(config: RunConfig) -> Iterator[Problem]:
    """Optimizers with `strategy: adamw_bf16` although the weights are float32."""
    if config.model.dtype != "float32":
        return
    optimizers = {"actor.optim": config.actor.optim}
    if config.cold_start is not None:
        optimizers["cold_start.optim"] = config.cold_start.optim
    if config.critic is not None:
        optimizers["critic.optim"] = config.critic.optim
    for key, optim in optimizers.items():
        if optim.strategy == "adamw_bf16":
            yield Problem(
                where=f"{key}.strategy",
                what="adamw_bf16 is for bfloat16 weights, and model.dtype is float32",
                fix="set it to adamw, or model.dtype to bfloat16",
            )

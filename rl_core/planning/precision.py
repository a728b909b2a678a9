"""What is trained, in which number formats, and how the engine runs, in words."""

from rl_core.config.model import ModelConfig
from rl_core.config.training import OptimConfig, RolloutConfig


def trained_words(model: ModelConfig) -> str:
    """The part of the model that RL moves."""
    if model.lora is not None:
        return f"LoRA adapters of rank {model.lora.rank}"
    return "all weights but the vision tower's" if model.freeze_vision_tower else "all weights"


def precision_words(model: ModelConfig, optim: OptimConfig) -> str:
    """Arithmetic of the forward and backward passes and of the engine, and what the optimizer sees."""
    if model.dtype == "float32":
        return "float32 throughout"
    kept = "; gradients and first moment bfloat16" if optim.strategy == "adamw_bf16" else ""
    return f"{model.dtype} arithmetic, float32 master weights{kept}"


def engine_words(rollout: RolloutConfig, *, on_gpu: bool) -> str:
    """Whether the engine compiles the model, and who decided it."""
    chosen = "eager" if rollout.is_eager(on_gpu=on_gpu) else "compiled, with graphs"
    why = f"auto, on a {'GPU' if on_gpu else 'CPU'}" if rollout.enforce_eager == "auto" else "as configured"
    return f"{chosen} ({why})"

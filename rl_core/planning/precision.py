"""What is trained, in which number formats, and how vLLM runs, in words; and on a CPU, with how many threads."""

from collections.abc import Sequence

from rl_core.config.cluster import ClusterConfig
from rl_core.config.model import ModelConfig
from rl_core.config.training import OptimConfig, RolloutConfig
from rl_core.environment import asked_threads, threads_of_a_worker
from rl_core.planning.settings import Choice


def trained_words(model: ModelConfig) -> str:
    """The part of the model that RL trains."""
    if model.lora is not None:
        return f"LoRA adapters of rank {model.lora.rank}"
    return "all weights but the vision tower's" if model.freeze_vision_tower else "all weights"


def precision_words(model: ModelConfig, optim: OptimConfig) -> str:
    """Number formats of forward and backward passes, of the generator and of the optimizer."""
    if model.dtype == "float32":
        return "float32 throughout"
    kept = "; gradients and first moment bfloat16" if optim.strategy == "adamw_bf16" else ""
    return f"{model.dtype} arithmetic, float32 master weights{kept}"


def engine_words(rollout: RolloutConfig, *, on_gpu: bool) -> str:
    """Whether vLLM compiles the model, and who decided it."""
    chosen = "eager" if rollout.is_eager(on_gpu=on_gpu) else "compiled, with graphs"
    why = f"auto, on a {'GPU' if on_gpu else 'CPU'}" if rollout.enforce_eager == "auto" else "as configured"
    return f"{chosen} ({why})"


def threads_words(cluster: ClusterConfig) -> str:
    """The number of threads of each worker on CPUs, and what it comes from."""
    if cluster.threads is not None:
        why = "cluster.threads"
    elif asked_threads() is not None:
        why = "OMP_NUM_THREADS; cluster.threads would keep it on every machine"
    else:
        why = "its share of the cores here; cluster.threads would keep it on every machine"
    return f"{threads_of_a_worker(cluster.devices, fixed=cluster.threads)} for each worker ({why})"


def settings_words(choices: Sequence[Choice]) -> str:
    """What was chosen for the settings that are `auto`, and why."""
    if not choices:
        return "as configured"
    chosen = ", ".join(f"{choice.key} {choice.shown}" for choice in choices)
    return f"{chosen} (auto: {choices[0].why})"

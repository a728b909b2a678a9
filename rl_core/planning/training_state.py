"""What a worker keeps of the parameters in memory (docs/memory.md, "On several workers") and on the disk."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from rl_core.config.cluster import ClusterConfig
from rl_core.config.model import LoraConfig, ModelConfig
from rl_core.config.run import RunConfig
from rl_core.config.training import OptimConfig
from rl_core.planning.model_sizes import ModelSizes

BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingState:
    """What a stage keeps of the parameters that it trains, in bytes. `lower_bits` are those of the float32 master
    weights, which bfloat16 weights lack and the optimizer keeps."""

    parameters: int
    weights: int
    gradients: int
    moments: int
    lower_bits: int

    @property
    def optimizer(self) -> int:
        """Everything that the optimizer keeps."""
        return self.moments + self.lower_bits

    @property
    def numbers(self) -> int:
        """The trained weights in a checkpoint, where they are always float32."""
        return self.parameters * BYTES["float32"]


def rl_training_state(
    model: ModelConfig, optim: OptimConfig, sizes: ModelSizes, *, sharded: bool = False
) -> TrainingState:
    """The training state of RL; `sharded` if the sizes are those of one worker's part."""
    if model.lora is not None:
        return _state(adapter_parameters(model.lora, sizes), dtype=model.dtype, optim=optim, sharded=sharded)
    frozen = sizes.vision_parameters if model.freeze_vision_tower else 0
    return _state(sizes.parameters - frozen, dtype=model.dtype, optim=optim, sharded=sharded)


def whole_training_state(
    model: ModelConfig, optim: OptimConfig, sizes: ModelSizes, *, sharded: bool = False
) -> TrainingState:
    """The training state of a cold start or a critic, which trains every weight."""
    return _state(sizes.parameters, dtype=model.dtype, optim=optim, sharded=sharded)


def adapter_parameters(lora: LoraConfig, sizes: ModelSizes) -> int:
    """Parameters of all adapters: on a layer of I inputs and O outputs, rank * (I + O)."""
    adapted = _adapted_names(tuple(sizes.linear_layers), lora)
    return lora.rank * sum(sizes.linear_layers[name] for name in adapted)


def adapted_layers(lora: LoraConfig, sizes: ModelSizes) -> int:
    """Number of layers with an adapter."""
    return len(_adapted_names(tuple(sizes.linear_layers), lora))


@lru_cache(maxsize=64)
def _adapted_names(names: tuple[str, ...], lora: LoraConfig) -> list[str]:
    """Kept, because a plan makes hundreds of forecasts for the layers of one model."""
    return [name for name in names if is_adapted(name, lora)]


def is_adapted(name: str, lora: LoraConfig) -> bool:
    """Whether the linear layer with this name gets an adapter, by peft's rules."""
    if lora.excluded is not None and _matches(name, lora.excluded):
        return False
    return lora.target_modules == "all-linear" or _matches(name, lora.target_modules)


def _matches(name: str, wanted: str | tuple[str, ...]) -> bool:
    if isinstance(wanted, str):
        return re.fullmatch(wanted, name) is not None
    return any(name == ending or name.endswith(f".{ending}") for ending in wanted)


def _state(parameters: int, *, dtype: str, optim: OptimConfig, sharded: bool) -> TrainingState:
    """With `adamw_bf16` the gradient and the first moment take half as much. Otherwise trained weights in shards are
    float32 (rl_core.models.sharding), and need no lower bits."""
    is_pure = dtype == "bfloat16" and optim.strategy == "adamw_bf16"
    weight = BYTES["float32"] if sharded and not is_pure else BYTES[dtype]
    gradient = 2 if is_pure else 4
    second_moment = 4
    return TrainingState(
        parameters=parameters,
        weights=parameters * weight,
        gradients=parameters * gradient,
        moments=parameters * (gradient + second_moment),
        lower_bits=parameters * (BYTES["float32"] - weight),
    )


def shards(cluster: ClusterConfig) -> int:
    """The number of workers over which weights, gradients and moments are spread."""
    match cluster.sharding:
        case "full":
            return cluster.trainers
        case "hybrid":
            return cluster.training_devices
        case "none":
            return 1


def is_sharded(cluster: ClusterConfig) -> bool:
    """Whether the trainer's weights are spread with FSDP2; with `none`, each worker keeps them as one worker does."""
    return cluster.trainers > 1 and cluster.sharding != "none"


def part_of(sizes: ModelSizes, parts: int) -> ModelSizes:
    """What one of several workers holds of a model that is spread evenly; a head's keys and values are not divided."""
    if parts == 1:
        return sizes
    return replace(
        sizes,
        parameters=-(-sizes.parameters // parts),
        vision_parameters=-(-sizes.vision_parameters // parts),
        key_value_size=max(sizes.head_size, sizes.key_value_size // parts),
        linear_layers={name: -(-ends // parts) for name, ends in sizes.linear_layers.items()},
    )


def gathered_embedding_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of embeddings and output head, which a worker gathers for a whole pass; 0 if it has all weights."""
    if shards(config.cluster) == 1:
        return 0
    matrices = 1 if sizes.tied_head else 2
    return matrices * sizes.vocab_size * sizes.hidden_size * BYTES[config.model.dtype]


def gathered_layer_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of the layer that computes and of the one that is fetched ahead; 0 if a worker has all weights."""
    if shards(config.cluster) == 1:
        return 0
    return 2 * sizes.layer_parameters * BYTES[config.model.dtype]


def exchanged_layer_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of the whole gradient of a layer, and of its copy in float32 that is added up over the workers; 0 if a
    worker has all weights, or trains adapters only."""
    if shards(config.cluster) == 1 or config.model.lora is not None:
        return 0
    return sizes.layer_parameters * (BYTES[config.model.dtype] + BYTES["float32"])


def disk_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Most bytes of a run's models and checkpoints on the disk. A new checkpoint is complete before the oldest is
    removed, so for a moment there is one more than the run keeps."""
    models = 2 if config.cold_start is None else 3  # as configured, merged, and after the cold start
    kept = config.trainer.save_limit + (1 if config.trainer.val_freq > 0 else 0)  # the best one too
    return models * sizes.parameters * BYTES[config.model.dtype] + (kept + 1) * checkpoint_bytes(config, sizes)


def checkpoint_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of one checkpoint: the trained weights in float32, the frozen weights (except with LoRA, whose checkpoints
    hold adapters only), the optimizer's moments unless `trainer.save_model_only` is set, and the same of a critic."""
    model = config.model
    trained = rl_training_state(model, config.actor.optim, sizes)
    frozen = 0 if model.lora is not None else (sizes.parameters - trained.parameters) * BYTES[model.dtype]
    weights = trained.numbers + frozen
    moments = trained.moments
    if config.critic is not None:
        critic = whole_training_state(model, config.critic.optim, sizes)
        weights += critic.numbers
        moments += critic.moments
    return weights if config.trainer.save_model_only else weights + moments

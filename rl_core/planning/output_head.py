"""What the gradients of embedding and output head cost in a backward pass, beside those that a worker keeps."""

from rl_core.config.run import RunConfig
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.shards import is_sharded
from rl_core.planning.training_state import BYTES


def held_head_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of the head's gradient of the chunks so far; 0 where the head is not trained. It is held to the end of the
    backward pass where the head is the embedding or a worker has a shard of it."""
    return _weights(config, sizes) * _gradient_bytes(config)


def summed_head_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes where the gradient of a chunk is added to it: a product, and the product in the gradient's format."""
    number, gradient = BYTES[config.model.dtype], _gradient_bytes(config)
    return _weights(config, sizes) * (gradient + number + (gradient if gradient != number else 0))


def end_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes at the end of a backward pass. Over shards these are the gradients of embedding and head as a whole, and
    their copies in float32 that are added up over the workers; otherwise that of the embedding as in a chunk."""
    if is_sharded(config.cluster):
        matrices = 1 if sizes.tied_head else 2
        return matrices * _weights(config, sizes) * (BYTES[config.model.dtype] + BYTES["float32"])
    return summed_head_bytes(config, sizes)


def _weights(config: RunConfig, sizes: ModelSizes) -> int:
    return sizes.vocab_size * sizes.hidden_size if config.model.lora is None else 0


def _gradient_bytes(config: RunConfig) -> int:
    """Bytes of a number: float32, except in pure bfloat16, and over shards before the workers' are added up."""
    is_pure = config.actor.optim.strategy == "adamw_bf16"
    return BYTES[config.model.dtype] if is_pure or is_sharded(config.cluster) else BYTES["float32"]

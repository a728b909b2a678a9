"""What one of several workers holds of a model (docs/memory.md, "On several workers")."""

from dataclasses import replace

from rl_core.config.cluster import ClusterConfig
from rl_core.config.run import RunConfig
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.training_state import BYTES


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
    """Bytes of the embeddings and the output head, which a worker gathers for a whole pass; 0 if it has all
    weights."""
    if shards(config.cluster) == 1:
        return 0
    matrices = 1 if sizes.tied_head else 2
    return matrices * sizes.vocab_size * sizes.hidden_size * BYTES[config.model.dtype]


def gathered_layer_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of the layer that computes and of the one that is fetched ahead; 0 if a worker has all weights."""
    if shards(config.cluster) == 1:
        return 0
    return 2 * _layer_parameters(sizes) * BYTES[config.model.dtype]


def exchanged_layer_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of the whole gradient of a layer, and of its copy in float32 that is added up over the workers; 0 if a
    worker has all weights, or trains adapters only."""
    if shards(config.cluster) == 1 or config.model.lora is not None:
        return 0
    return _layer_parameters(sizes) * (BYTES[config.model.dtype] + BYTES["float32"])


def _layer_parameters(sizes: ModelSizes) -> int:
    heads = 2 * sizes.hidden_size * (sizes.query_size + sizes.key_value_size)
    return heads + 3 * sizes.hidden_size * sizes.intermediate_size

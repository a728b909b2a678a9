"""What the transfer of the weights to the generator takes for a moment, beside what trainer and generator hold."""

from collections.abc import Iterator

from rl_core.config.run import RunConfig
from rl_core.planning.memory_rows import MemoryRow
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.shards import is_sharded, shards
from rl_core.planning.training_state import BYTES

MERGING_BYTES = 4 + 4
"""Bytes of a number of a layer whose adapter is merged: the weight and the sum, in float32."""


def sync_rows(config: RunConfig, sizes: ModelSizes, *, on_gpu: bool) -> Iterator[MemoryRow]:
    """The largest weight as a whole, and on a GPU the layer that vLLM fills before it copies it to where its graphs
    read it (vllm.model_executor.model_loader.reload.layerwise)."""
    number = BYTES[config.model.dtype]
    embedding = sizes.vocab_size * sizes.hidden_size * number
    yield _row("whole weight in the sync", max(_gathered(config, embedding), _merged(config, sizes)))
    filled = embedding // config.cluster.tensor_parallel_size
    yield _row("engine layer that the sync fills", filled if on_gpu else 0)


def _gathered(config: RunConfig, embedding: int) -> int:
    """The embedding, and this worker's part of it in the number format of the model."""
    return embedding + embedding // shards(config.cluster) if is_sharded(config.cluster) else 0


def _merged(config: RunConfig, sizes: ModelSizes) -> int:
    """The largest layer with an adapter, those of the feed-forward; none where adapters are sent separately."""
    if config.model.lora is None or config.model.generator_lora is not None:
        return 0
    gathered = 2 if is_sharded(config.cluster) else 0
    return sizes.hidden_size * sizes.intermediate_size * (MERGING_BYTES + BYTES[config.model.dtype] + gathered)


def _row(name: str, num_bytes: int) -> MemoryRow:
    return MemoryRow(name=name, num_bytes=num_bytes, moments=("weight sync",))

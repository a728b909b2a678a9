"""What the generator takes: weights, KV cache, the memory that vLLM works in, and for a moment the transfer of weights.
`sizes` are those of a worker's part (`engine_part`), except in the transfer."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rl_core.config.cluster import ClusterConfig
from rl_core.config.run import RunConfig
from rl_core.planning.batches import longest_sequence
from rl_core.planning.memory_rows import GIB, MemoryRow
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.training_state import BYTES, is_sharded, part_of, shards
from rl_core.planning.update_memory import PATCHES_A_TOKEN, Pass, vision_forward_bytes

TOKENS_A_FORWARD: Final = 8192
"""Prompt tokens of one forward pass (rl_core.rollout.vllm_arguments)."""

SAMPLER_COPIES: Final = 4
"""float32 arrays of [sequences, vocabulary] in vLLM's sampler: logits, processed logits, log-probs, noise."""

IMAGE_COPIES: Final = 12
"""Arrays of the vision tower's width in vLLM's forward pass of it, for each patch: those of its feed-forward, or
queries, keys and values and what is rotated. Read in its sources."""

DRIVER_BYTES: Final = GIB // 2
"""What nvidia-smi has as memory of a GPU and torch has not, of which vLLM takes its share: 0.35 to 0.55 GiB on cards of
24 to 141 GB. An estimate."""

GRAPH_BYTES: Final = GIB
"""CUDA graphs of vLLM's usual batch sizes; it reports 0.5 to 1.5 GiB when it captures them for models of 3B to 7B."""


def engine_part(cluster: ClusterConfig, sizes: ModelSizes) -> ModelSizes:
    """What a worker holds of the model in its generator; the width between attention and feed-forward is not
    divided."""
    ranks = cluster.tensor_parallel_size
    return replace(part_of(sizes, ranks), intermediate_size=-(-sizes.intermediate_size // ranks))


def kv_bytes_per_token(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of a token in the KV cache: a key and a value in each layer."""
    return 2 * sizes.num_layers * sizes.key_value_size * BYTES[config.model.dtype]


def sequence_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of a sequence of the greatest length in the KV cache."""
    return kv_bytes_per_token(config, sizes) * longest_sequence(config)


def cpu_cache_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of the KV cache on a CPU: as configured, but no more than the running sequences can fill."""
    return min(config.rollout.cpu_kv_cache_gib * GIB, config.rollout.max_num_seqs * sequence_bytes(config, sizes))


def gpu_cache_bytes(config: RunConfig, sizes: ModelSizes, *, gpu_gib: float, weights: int) -> int:
    """Bytes of the KV cache on a GPU: what is left of vLLM's share of the memory without its weights, the peak of the
    forward pass that it tries at its start, and its CUDA graphs."""
    share = math.floor(config.rollout.gpu_share * (gpu_gib * GIB - DRIVER_BYTES))
    return max(0, share - weights - engine_work_bytes(config, sizes, on_gpu=True) - graph_bytes(config))


def engine_work_bytes(config: RunConfig, sizes: ModelSizes, *, on_gpu: bool) -> int:
    """Bytes of vLLM's largest forward pass, or of its sampler or the vision tower if one of these is more. A forward
    pass has the hidden states and the arrays of the feed-forward of all prompt tokens that it computes at a time. On a
    GPU it tries the most tokens at its start."""
    tokens = max(TOKENS_A_FORWARD, longest_sequence(config))
    if not on_gpu:
        tokens = min(tokens, config.rollout.max_num_seqs * config.longest_prompt)
    forward = tokens * (4 * sizes.hidden_size + 3 * sizes.intermediate_size) * BYTES[config.model.dtype]
    sampler = SAMPLER_COPIES * 4 * config.rollout.max_num_seqs * sizes.vocab_size
    return max(forward, sampler, largest_image_bytes(config, sizes) if on_gpu else 0)


def largest_image_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of the vision tower over the image that vLLM tries at its start, which fills a forward pass."""
    tokens = max(TOKENS_A_FORWARD, longest_sequence(config), 5 * config.longest_prompt // 4)
    image = Pass(tokens=tokens, targets=0, patches=tokens * PATCHES_A_TOKEN, keys=0.0, on_gpu=True)
    return vision_forward_bytes(config, sizes, image, copies=IMAGE_COPIES)


def graph_bytes(config: RunConfig) -> int:
    """Bytes of CUDA graphs, which stay while the engine sleeps; 0 for an eager engine."""
    return 0 if config.rollout.is_eager(on_gpu=True) else GRAPH_BYTES


MERGING_BYTES = 4 + 4
"""Bytes of a number of a layer whose adapter is merged: the weight and the sum, in float32."""


def sync_rows(config: RunConfig, sizes: ModelSizes, *, on_gpu: bool) -> Iterator[MemoryRow]:
    """The largest weight as a whole, and on a GPU the layer that vLLM fills before it copies it to where its graphs
    read it (vllm.model_executor.model_loader.reload.layerwise): the embedding, or the experts of a layer, which are
    most of it."""
    number = BYTES[config.model.dtype]
    experts = sizes.layer_parameters if sizes.experts_per_token else 0
    largest = max(sizes.vocab_size * sizes.hidden_size, experts) * number
    yield _row("whole weight in the sync", max(_gathered(config, largest), _merged(config, sizes)))
    filled = largest // config.cluster.tensor_parallel_size
    yield _row("engine layer that the sync fills", filled if on_gpu else 0)


def _gathered(config: RunConfig, weight: int) -> int:
    """The weight, and this worker's part of it in the number format of the model."""
    return weight + weight // shards(config.cluster) if is_sharded(config.cluster) else 0


def _merged(config: RunConfig, sizes: ModelSizes) -> int:
    """The largest layer with an adapter, those of the feed-forward; none where adapters are sent separately."""
    if config.model.lora is None or config.model.generator_lora is not None:
        return 0
    gathered = 2 if is_sharded(config.cluster) else 0
    return sizes.hidden_size * sizes.intermediate_size * (MERGING_BYTES + BYTES[config.model.dtype] + gathered)


def _row(name: str, num_bytes: int) -> MemoryRow:
    return MemoryRow(name=name, num_bytes=num_bytes, moments=("weight sync",))

"""The rates of a GPU that has not been measured: what its memory and its arithmetic allow (roofline; Williams et al.
2009), at stated efficiencies, in bfloat16. Not counted are the vision tower, attention's own arithmetic, what freezing
saves, offloading, rewards, what workers of a generator wait for each other, and the start of kernels in the trainer,
which is what the update of a tiny model consists of."""

from typing import Final

from rl_core.config.run import RunConfig
from rl_core.planning.device_rates import DeviceRates
from rl_core.planning.engine_memory import engine_part, kv_bytes_per_token
from rl_core.planning.gpu_cards import GpuCard
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.shards import is_sharded, part_of, shards
from rl_core.planning.step_work import Lengths
from rl_core.planning.training_state import BYTES, rl_training_state

MEMORY_EFFICIENCY: Final = 0.7
"""Share of the memory bandwidth that a decode step or an optimizer reaches. An estimate: 60 to 85 % is a usual range
for decoding (model bandwidth utilization)."""

ARITHMETIC_EFFICIENCY: Final = 0.35
"""Share of the arithmetic that a pass reaches: torchtitan reports 33 to 39 % for Llama 3.1 8B with FSDP2 on 8 and 128
H100 (its docs/performance.md)."""

LINK_EFFICIENCY: Final = 0.6
"""Share of the link's rate that a collective reaches. An estimate."""

STEP_OVERHEAD: Final = 0.002
"""Seconds that vLLM schedules and samples in a decode step. An estimate."""

LAYER_SYNC: Final = 0.006
"""Seconds in which the tensors of a linear layer (its weight, a bias or a norm) go to the generator through vLLM's
loaders, which take them one at a time. An estimate."""


def assumed_rates(config: RunConfig, lengths: Lengths, *, sizes: ModelSizes, card: GpuCard) -> DeviceRates:
    """The rates of a card. The arithmetic of a decode step goes on while the weights are read: on these cards it takes
    longer than reading them only with more than 150 to 300 sequences, which is not counted.

    Args:
        config: The run's config, in which every `auto` is settled.
        lengths: Of prompts and responses: keys and values of that many tokens are read in a decode step.
        sizes: Sizes of its model.
        card: The kind of GPU.
    """
    bandwidth, flops = MEMORY_EFFICIENCY * card.bandwidth, ARITHMETIC_EFFICIENCY * card.flops
    link, number = LINK_EFFICIENCY * card.link, BYTES[config.model.dtype]
    engine = engine_part(config.cluster, sizes)
    context = lengths.prompt + lengths.response / 2  # half of a response is there on average
    language = sizes.parameters - sizes.vision_parameters
    engine_language = engine.parameters - engine.vision_parameters
    weights, loading = sizes.parameters * number, LAYER_SYNC * len(sizes.linear_layers)
    gathered = weights / link if shards(config.cluster) > 1 else 0.0
    return DeviceRates(
        decode_fixed=engine_language * number / bandwidth + STEP_OVERHEAD,
        decode_sequence=context * kv_bytes_per_token(config, engine) / bandwidth,
        prefill_token=2 * engine_language / flops,
        update_fixed=_optimizer_seconds(config, sizes, bandwidth=bandwidth, link=link),
        exchange=_whole_gradients(config, sizes) / shards(config.cluster) / link,
        update_token=_operations(config) * language / flops,
        forward_token=2 * language / flops,
        sync_within=loading + 2 * weights / bandwidth + gathered,
        sync_between=loading + weights / link,
        other=0.0,
    )


def _operations(config: RunConfig) -> int:
    """Floating-point operations of a forward and backward pass, for each parameter and token: 2 forward; backward 2 for
    the activations, and 2 for the weights unless only adapters are trained; 2 where the forward pass is repeated
    (Korthikanti et al. 2022)."""
    backward = 4 if config.model.lora is None else 2
    return 2 + backward + (2 if config.model.recomputes_activations else 0)


def _optimizer_seconds(config: RunConfig, sizes: ModelSizes, *, bandwidth: float, link: float) -> float:
    """Seconds of an optimizer step beside its passes: everything that it keeps is read and written, and where weights
    are spread the gradients of all learners are added up (a ring sends them twice)."""
    cluster = config.cluster
    state = rl_training_state(
        config.model, config.actor.optim, part_of(sizes, shards(cluster)), sharded=cluster.trainers > 1
    )
    moved = 2 * (state.weights + state.optimizer + state.gradients) / bandwidth
    return moved + 2 * _whole_gradients(config, sizes) / link if is_sharded(cluster) else moved


def _whole_gradients(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of the gradients of all trained weights, which are added up in float32."""
    return rl_training_state(config.model, config.actor.optim, sizes, sharded=True).gradients

"""A forecast of a run's memory, as rows that a person can add up.

It counts the large things only: the allocator's overhead, CUDA contexts and libraries come on top.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rl_core.config.run import RunConfig
from rl_core.config.training import ActorConfig, ColdStartConfig, CriticConfig
from rl_core.planning.batches import longest_sequence
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.problem import Problem
from rl_core.planning.training_state import BYTES, rl_training_state, whole_training_state

GIB = 1 << 30

# The logits of a chunk, their log-softmax and their gradient are in float32. A full KL adds the reference's logits and
# log-softmax, and the difference of the two models.
_LOGIT_COPIES = 3
_FULL_KL_COPIES = 3

Phase = Literal["always", "generate", "update", "update critic", "cold start"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryRow:
    """One thing that takes memory: its name, its bytes, and the phase in which it is there."""

    name: str
    num_bytes: int
    phase: Phase

    @property
    def gib(self) -> float:
        """Its size in GiB."""
        return self.num_bytes / GIB


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryForecast:
    """The memory of one worker, and what its KV cache holds.

    Attributes:
        rows: What takes memory.
        cached_sequences: How many sequences of the greatest length the KV cache holds at one time; 0 where there is no
            room for any.
    """

    rows: Sequence[MemoryRow]
    cached_sequences: int

    @property
    def peak_gib(self) -> float:
        """Most memory at one time. A cold start ends before RL, and in RL generation and the updates take turns."""
        turns: tuple[Phase, ...] = ("generate", "update", "update critic")
        return max(self._total("always") + max(map(self._total, turns)), self._total("cold start"))

    def _total(self, phase: Phase) -> float:
        return sum(row.gib for row in self.rows if row.phase == phase)


def memory_forecast(config: RunConfig, sizes: ModelSizes, *, gpu_gib: float | None = None) -> MemoryForecast:
    """The forecast for a worker.

    Args:
        config: The run's config.
        sizes: Sizes of its model.
        gpu_gib: Memory of the GPU in GiB; 0 leaves out the KV cache. None for a worker on the CPU.
    """
    weights = sizes.parameters * BYTES[config.model.dtype]
    one_sequence = kv_bytes_per_token(config, sizes) * longest_sequence(config)
    cache = kv_cache_bytes(config, one_sequence=one_sequence, weights=weights, gpu_gib=gpu_gib)
    trained = rl_training_state(config.model, config.actor.optim, sizes)
    rows = [
        MemoryRow(name="weights", num_bytes=weights, phase="always"),
        MemoryRow(name="optimizer state", num_bytes=trained.optimizer, phase="always"),
        MemoryRow(name="engine weights", num_bytes=weights, phase="generate" if gpu_gib is not None else "always"),
        MemoryRow(name="engine KV cache", num_bytes=cache, phase="generate" if gpu_gib is not None else "always"),
        MemoryRow(name="gradients", num_bytes=trained.gradients, phase="update"),
        MemoryRow(
            name="activations of the language model",
            num_bytes=activation_bytes(config, sizes, config.actor),
            phase="update",
        ),
        MemoryRow(name="logits of a chunk", num_bytes=logit_bytes(config, sizes), phase="update"),
    ]
    if config.model.lora is not None:
        rows.insert(1, MemoryRow(name="adapters", num_bytes=trained.weights, phase="always"))
    elif config.algorithm.kl is not None:
        rows.insert(2, MemoryRow(name="reference weights", num_bytes=weights, phase="always"))
    if config.critic is not None:
        rows += _critic_rows(config, sizes, config.critic)
    if config.cold_start is not None:
        rows.append(_cold_start_row(config, config.cold_start, sizes))
    return MemoryForecast(rows=tuple(rows), cached_sequences=cache // one_sequence)


def _critic_rows(config: RunConfig, sizes: ModelSizes, critic: CriticConfig) -> list[MemoryRow]:
    """A second model with all that training needs. Its head has one output, and is not counted."""
    state = whole_training_state(config.model, critic.optim, sizes)
    activations = activation_bytes(config, sizes, critic)
    return [
        MemoryRow(name="critic's weights", num_bytes=state.weights, phase="always"),
        MemoryRow(name="critic's optimizer state", num_bytes=state.optimizer, phase="always"),
        MemoryRow(name="critic's gradients", num_bytes=state.gradients, phase="update critic"),
        MemoryRow(name="critic's activations", num_bytes=activations, phase="update critic"),
    ]


def _cold_start_row(config: RunConfig, cold_start: ColdStartConfig, sizes: ModelSizes) -> MemoryRow:
    """Memory of the cold start. It trains all weights, and no generator runs beside it."""
    state = whole_training_state(config.model, cold_start.optim, sizes)
    passing = activation_bytes(config, sizes, config.actor) + logit_bytes(config, sizes)
    num_bytes = state.weights + state.optimizer + state.gradients + passing
    return MemoryRow(name="cold start, all of it", num_bytes=num_bytes, phase="cold start")


def kv_bytes_per_token(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of a token in the KV cache: a key and a value in each layer."""
    return 2 * sizes.num_layers * sizes.key_value_size * BYTES[config.model.dtype]


def kv_cache_bytes(config: RunConfig, *, one_sequence: int, weights: int, gpu_gib: float | None) -> int:
    """Bytes of the KV cache: on a CPU as configured, but no more than the running sequences can fill; on a GPU what
    vLLM's share of the memory leaves beside the weights."""
    if gpu_gib is None:
        return min(config.rollout.cpu_kv_cache_gib * GIB, config.rollout.max_num_seqs * one_sequence)
    return max(0, math.floor(config.rollout.gpu_memory_utilization * gpu_gib * GIB) - weights)


def activation_bytes(config: RunConfig, sizes: ModelSizes, owner: ActorConfig | CriticConfig) -> int:
    """Bytes that the language model of policy or critic keeps of a micro-batch for its backward pass.

    A layer keeps for every token the inputs of its norms and projections (4 x width), queries and attention output,
    keys and values, and the four arrays of the gated feed-forward: the count of Korthikanti et al. 2022, "Reducing
    Activation Recomputation in Large Transformer Models", section 4.1, for this kind of layer and an attention kernel
    that keeps no score matrix. With checkpointing only a layer's input is kept, and one layer is whole at a time.
    """
    tokens = longest_sequence(config) * owner.micro_batch_size_per_device_for_update
    width = sizes.hidden_size
    layer = 4 * width + 2 * sizes.query_size + 2 * sizes.key_value_size + 4 * sizes.intermediate_size
    kept = sizes.num_layers * width + layer if config.model.gradient_checkpointing else sizes.num_layers * layer
    return tokens * kept * BYTES[config.model.dtype]


def logit_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of the float32 logits of `model.log_prob_chunk_tokens` tokens and of the tensors that are computed from
    them."""
    full_kl = config.algorithm.kl is not None and config.algorithm.kl.penalty == "full"
    copies = _LOGIT_COPIES + (_FULL_KL_COPIES if full_kl else 0)
    return copies * 4 * config.model.log_prob_chunk_tokens * sizes.vocab_size


def memory_problems(config: RunConfig, sizes: ModelSizes, *, available_gib: float, on_gpu: bool) -> list[Problem]:
    """Everything that does not fit: the run into memory, a sequence into the KV cache, a sequence into the model's
    positions."""
    forecast = memory_forecast(config, sizes, gpu_gib=available_gib if on_gpu else None)
    checks = (_size_problem(forecast, available_gib, on_gpu), _cache_problem(config, sizes, forecast, on_gpu))
    return [problem for problem in (*checks, position_problem(config, sizes)) if problem is not None]


def position_problem(config: RunConfig, sizes: ModelSizes) -> Problem | None:
    """A prompt and response longer than the model was made for."""
    longest = longest_sequence(config)
    if longest <= sizes.max_positions:
        return None
    return Problem(
        where="rollout.max_response_length",
        what=f"a prompt of {config.data.max_prompt_length} and a response of {config.rollout.max_response_length} "
        f"tokens are {longest} together, more than the model's {sizes.max_positions} positions",
        fix=f"lower data.max_prompt_length or rollout.max_response_length by {longest - sizes.max_positions} in all",
    )


def _size_problem(forecast: MemoryForecast, available_gib: float, on_gpu: bool) -> Problem | None:
    if forecast.peak_gib <= available_gib:
        return None
    largest = max(forecast.rows, key=lambda row: row.num_bytes)
    engine = "lower rollout.gpu_memory_utilization, " if on_gpu else ""
    return Problem(
        where="memory of the GPU" if on_gpu else "memory of this machine",
        what=f"about {forecast.peak_gib:.1f} GiB are needed and {available_gib:.1f} GiB are there; the largest part is "
        f"{largest.name}, {largest.gib:.1f} GiB",
        fix=f"{engine}lower actor.micro_batch_size_per_device_for_update or model.log_prob_chunk_tokens, turn "
        "model.gradient_checkpointing on, train less (model.lora, model.freeze_vision_tower) or in less "
        "(model.dtype bfloat16, actor.optim.strategy adamw_bf16), or take a smaller model",
    )


def _cache_problem(config: RunConfig, sizes: ModelSizes, forecast: MemoryForecast, on_gpu: bool) -> Problem | None:
    if forecast.cached_sequences:
        return None
    needed = kv_bytes_per_token(config, sizes) * longest_sequence(config) / GIB
    where = "rollout.gpu_memory_utilization" if on_gpu else "rollout.cpu_kv_cache_gib"
    what = f"the KV cache of one longest sequence takes {needed:.2f} GiB, more than vLLM has for it"
    fix = "raise it" if on_gpu else f"set it to {math.ceil(needed)} or more"
    return Problem(where=where, what=what, fix=fix)

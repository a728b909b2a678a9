"""Problems of a run that does not fit into memory."""

import math
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.planning.batches import longest_sequence
from rl_core.planning.engine_memory import engine_part, sequence_bytes
from rl_core.planning.memory import memory_forecast
from rl_core.planning.memory_rows import GIB, MemoryForecast
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.problem import Problem

USABLE: Final = 0.92
"""Share of a GPU's memory that a forecast may fill. The rest is for what a forecast does not know: other programs, the
driver's reserve, longer tensors than usual."""


_MOST_GPUS: Final = 64
"""Most GPUs that a fix proposes."""


def memory_problems(
    config: RunConfig, sizes: ModelSizes, *, available_gib: float, on_gpu: bool, host_gib: float | None = None
) -> list[Problem]:
    """Everything that does not fit: the run into memory, a sequence into the KV cache, a sequence into the model's
    positions.

    Args:
        config: The run's config, in which every `auto` is settled.
        sizes: Sizes of its model.
        available_gib: Memory of the GPU, or of the machine.
        on_gpu: Which of the two.
        host_gib: Memory of a machine with a GPU; None does not ask about it.
    """
    forecast = memory_forecast(config, sizes, gpu_gib=available_gib if on_gpu else None)
    checks = (
        _size_problem(forecast, available_gib, on_gpu, gpus=_gpus_that_fit(config, sizes, available_gib)),
        _host_problem(forecast, host_gib),
        _cache_problem(config, sizes, forecast, on_gpu),
        position_problem(config, sizes),
    )
    return [problem for problem in checks if problem is not None]


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


def _gpus_that_fit(config: RunConfig, sizes: ModelSizes, gpu_gib: float) -> int | None:
    """The number of GPUs of this size on which the run fits if it is spread over them, as a multiple of what it has by
    a power of two; None if no number up to `_MOST_GPUS` is enough."""
    cluster = config.cluster
    while cluster.ranks <= _MOST_GPUS // 2:
        cluster = cluster.model_copy(update={"devices": 2 * cluster.devices, "sharding": "full"})
        spread = config.model_copy(update={"cluster": cluster})
        if memory_forecast(spread, sizes, gpu_gib=gpu_gib).peak_gib <= USABLE * gpu_gib:
            return cluster.ranks
    return None


def _size_problem(forecast: MemoryForecast, available_gib: float, on_gpu: bool, *, gpus: int | None) -> Problem | None:
    usable = available_gib * (USABLE if on_gpu else 1.0)
    needed = forecast.peak_gib if on_gpu else forecast.machine_gib
    if needed <= usable:
        return None
    largest = max(forecast.rows, key=lambda row: row.num_bytes)
    engine = "lower rollout.gpu_memory_utilization, " if on_gpu else ""
    there = f"{usable:.1f} GiB of {available_gib:.1f} may be planned with" if on_gpu else f"{usable:.1f} GiB are there"
    return Problem(
        where="memory of the GPU" if on_gpu else "memory of this machine",
        what=f"about {needed:.1f} GiB are needed{_by_workers(forecast) if not on_gpu else ''} and {there}; the largest "
        f"part is {largest.name}, {largest.gib:.1f} GiB",
        fix=f"{engine}lower actor.micro_batch_size_per_device_for_update or model.log_prob_chunk_tokens, turn "
        "model.gradient_checkpointing on, set trainer.offload to all (on a GPU), train less (model.lora, "
        "model.freeze_vision_tower) or in less (model.dtype bfloat16, actor.optim.strategy adamw_bf16), "
        + (f"spread it over {gpus} such GPUs (section cluster), " if on_gpu and gpus else "")
        + "or take a smaller model",
    )


def _host_problem(forecast: MemoryForecast, host_gib: float | None) -> Problem | None:
    if host_gib is None or forecast.machine_gib <= host_gib:
        return None
    largest = max(forecast.host_rows, key=lambda row: row.num_bytes)
    return Problem(
        where="memory of this machine",
        what=f"about {forecast.machine_gib:.1f} GiB are needed beside the GPU{_by_workers(forecast)} and "
        f"{host_gib:.1f} GiB are there; the largest part is {largest.name}, {largest.gib:.1f} GiB",
        fix="set trainer.offload to none or trainer.save_model_only to true, or train less (model.lora)",
        fatal=False,
    )


def _by_workers(forecast: MemoryForecast) -> str:
    return f" by {forecast.workers_a_machine} workers" if forecast.workers_a_machine > 1 else ""


def _cache_problem(config: RunConfig, sizes: ModelSizes, forecast: MemoryForecast, on_gpu: bool) -> Problem | None:
    if forecast.cached_sequences:
        return None
    needed = sequence_bytes(config, engine_part(config.cluster, sizes)) / GIB
    where = "rollout.gpu_memory_utilization" if on_gpu else "rollout.cpu_kv_cache_gib"
    what = f"the KV cache of one longest sequence takes {needed:.2f} GiB, more than vLLM has for it"
    fix = "raise it" if on_gpu else f"set it to {math.ceil(needed)} or more"
    return Problem(where=where, what=what, fix=fix)

"""Problems of a run that does not fit into memory."""

import math

from rl_core.config.run import RunConfig
from rl_core.planning.batches import longest_sequence
from rl_core.planning.engine_memory import engine_part, sequence_bytes
from rl_core.planning.fitting_changes import MemoryLimit, fitting_changes, gpus_that_fit, with_changes
from rl_core.planning.memory_rows import GIB, MemoryForecast
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.problem import Problem


def memory_problems(
    config: RunConfig, sizes: ModelSizes, *, available_gib: float, on_gpu: bool, host_gib: float | None = None
) -> list[Problem]:
    """Everything that does not fit: the run into memory, a sequence into the KV cache, a sequence into the model's
    positions.

    Args:
        config: The run's config.
        sizes: Sizes of its model.
        available_gib: Memory of the GPU, or of the machine.
        on_gpu: Which of the two.
        host_gib: Memory of a machine with a GPU; None does not ask about it.
    """
    limit = MemoryLimit(gib=available_gib, on_gpu=on_gpu)
    forecast = limit.forecast(config, sizes)
    too_large = _size_problem(config, sizes, forecast, limit)
    checks = (
        too_large,
        _host_problem(forecast, host_gib),
        # Where the trainer has no room, the generator has none either.
        None if too_large else _cache_problem(config, sizes, forecast, on_gpu),
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


def _size_problem(config: RunConfig, sizes: ModelSizes, forecast: MemoryForecast, limit: MemoryLimit) -> Problem | None:
    needed, usable = limit.needed_gib(forecast), limit.usable_gib
    if needed <= usable:
        return None
    largest = max(forecast.rows, key=lambda row: row.num_bytes)
    there = f"GiB of {limit.gib:.1f} may be planned with" if limit.on_gpu else "GiB are there"
    return Problem(
        where="memory of the GPU" if limit.on_gpu else "memory of this machine",
        what=f"about {needed:.1f} GiB are needed{_by_workers(forecast) if not limit.on_gpu else ''} and {usable:.1f} "
        f"{there}; the largest part is {largest.name}, {largest.gib:.1f} GiB",
        fix=_fix(config, sizes, limit),
    )


def _fix(config: RunConfig, sizes: ModelSizes, limit: MemoryLimit) -> str:
    """The cheapest changes, and what else there is."""
    ways = []
    if changes := fitting_changes(config, sizes, limit):
        needed = limit.needed_gib(limit.forecast(with_changes(config, changes), sizes))
        ways.append(f"set {', '.join(map(str, changes))} (then about {needed:.1f} GiB are needed)")
    if limit.on_gpu and (gpus := gpus_that_fit(config, sizes, limit)):
        ways.append(f"spread it over {gpus} such GPUs (section cluster)")
    ways.append("give it shorter responses")
    return ", or ".join([*ways, "take a smaller model"])


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

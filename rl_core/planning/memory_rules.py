"""Problems of a run that does not fit into memory."""

import math
from collections.abc import Sequence

from rl_core.config.model import LoraConfig
from rl_core.config.run import RunConfig
from rl_core.planning.changes import Change, with_changes
from rl_core.planning.engine_memory import engine_part, sequence_bytes
from rl_core.planning.fitting_changes import MemoryLimit, changes_to_more_gpus, fitting_changes
from rl_core.planning.memory_rows import GIB, MemoryForecast
from rl_core.planning.model_sizes import ModelSizes
from rl_core.problem import Problem


def memory_problems(
    config: RunConfig, sizes: ModelSizes, *, available_gib: float, on_gpu: bool, host_gib: float | None = None
) -> list[Problem]:
    """Everything that does not fit: the run into memory, and a sequence into the KV cache.

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
        _host_problem(config, sizes, forecast, limit, host_gib),
        # Where the trainer has no room, the generator has none either.
        None if too_large else _cache_problem(config, sizes, forecast, limit),
    )
    return [problem for problem in checks if problem is not None]


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
    """The cheapest changes, and what else there is: more GPUs, where those that there are cannot just share more."""
    ways = []
    changes = fitting_changes(config, sizes, limit)
    if changes:
        ways.append(_way(config, sizes, limit, changes))
    is_shared = changes is not None and all(change.key.startswith("cluster.") for change in changes)
    if limit.on_gpu and not is_shared and (changes := changes_to_more_gpus(config, sizes, limit)):
        gpus = with_changes(config, changes).cluster.ranks
        ways.append(f"spread it over {gpus} such GPUs: {_way(config, sizes, limit, changes)}")
    ways.append("give it shorter responses")
    return ", or ".join([*ways, "take a smaller model"])


def _way(config: RunConfig, sizes: ModelSizes, limit: MemoryLimit, changes: Sequence[Change]) -> str:
    """Changes with which a run fits, and what it takes then."""
    forecast = limit.forecast(with_changes(config, changes), sizes)
    cached = f", {forecast.cached_sequences:,} longest sequences in the KV cache" if limit.on_gpu else ""
    return f"set {', '.join(map(str, changes))} (then about {limit.needed_gib(forecast):.1f} GiB are needed{cached})"


def _host_problem(
    config: RunConfig, sizes: ModelSizes, forecast: MemoryForecast, limit: MemoryLimit, host_gib: float | None
) -> Problem | None:
    """More memory beside the GPUs than the machine has."""
    if host_gib is None or forecast.machine_gib <= host_gib:
        return None
    largest = max(forecast.host_rows, key=lambda row: row.num_bytes)
    changes = [
        *(Change.of("trainer.offload", kept) for kept in ("optimizer", "none")),
        Change.of("trainer.save_model_only", True),
        Change(key="model.lora", value=LoraConfig(), shown=f"{{rank: {LoraConfig().rank}}}"),
    ]
    enough = [change for change in changes if _fits_beside_gpus(with_changes(config, [change]), sizes, limit, host_gib)]
    return Problem(
        where="memory of this machine",
        what=f"about {forecast.machine_gib:.1f} GiB are needed beside the GPU{_by_workers(forecast)} and "
        f"{host_gib:.1f} GiB are there; the largest part is {largest.name}, {largest.gib:.1f} GiB",
        fix=f"set {' or '.join(map(str, enough))}"
        if enough
        else "take a smaller model, or more machines with fewer GPUs",
        fatal=False,
    )


def _fits_beside_gpus(config: RunConfig, sizes: ModelSizes, limit: MemoryLimit, host_gib: float) -> bool:
    return limit.fits(config, sizes) and limit.forecast(config, sizes).machine_gib <= host_gib


def _by_workers(forecast: MemoryForecast) -> str:
    return f" by {forecast.workers_a_machine} workers" if forecast.workers_a_machine > 1 else ""


def _cache_problem(
    config: RunConfig, sizes: ModelSizes, forecast: MemoryForecast, limit: MemoryLimit
) -> Problem | None:
    """A generator without room for any longest sequence, or on a GPU for so few that generating takes most of a
    step."""
    cached, fewest = forecast.cached_sequences, limit.fewest_sequences(config)
    if cached >= fewest:
        return None
    each = sequence_bytes(config, engine_part(config.cluster, sizes)) / GIB
    what = f"the KV cache of one longest sequence takes {each:.2f} GiB, more than vLLM has for it"
    if not limit.on_gpu:
        return Problem(where="rollout.cpu_kv_cache_gib", what=what, fix=f"set it to {math.ceil(each)} or more")
    if cached:
        what = (
            f"the KV cache has room for {cached} longest sequence(s) at a time, of {each:.2f} GiB each, so that "
            f"generating takes many times as long as with {fewest} or more"
        )
    return Problem(where="rollout.gpu_memory_utilization", what=what, fix=_fix(config, sizes, limit), fatal=cached == 0)

"""A forecast of a run's memory, as rows that a person can add up (docs/memory.md, "The forecast")."""

from collections.abc import Iterator
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.config.training import ColdStartConfig, CriticConfig, OptimConfig
from rl_core.planning.engine_memory import (
    DRIVER_BYTES,
    cpu_cache_bytes,
    engine_part,
    engine_work_bytes,
    gpu_cache_bytes,
    graph_bytes,
    sequence_bytes,
    sync_rows,
)
from rl_core.planning.memory_rows import (
    ALWAYS,
    BACKWARD,
    GENERATE,
    GIB,
    UPDATE,
    MemoryForecast,
    MemoryRow,
    Moment,
    largest_moment,
    total_gib,
)
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.training_state import (
    BYTES,
    TrainingState,
    adapter_parameters,
    checkpoint_bytes,
    gathered_embedding_bytes,
    gathered_layer_bytes,
    is_sharded,
    part_of,
    rl_training_state,
    shards,
    whole_training_state,
)
from rl_core.planning.update_memory import critic_pass_bytes, piece_bytes, reference_rows, update_rows

LIBRARIES_BYTES: Final = int(0.88 * GIB)
"""Resident memory of a process with torch, transformers, vLLM and an engine of a tiny model on a CPU: measured by
`python -m benchmarks.memory` (the configuration of 1 M parameters)."""

KEPT_ON_CPU: Final = 0.65
"""Share of the memory of an update that malloc keeps afterwards, up to KEPT_BYTES, measured by `python -m
benchmarks.memory`: freed blocks of less than 32 MiB stay in the process (M_MMAP_THRESHOLD_MAX of glibc)."""

RUN_LIBRARIES_BYTES: Final = int(0.22 * GIB)
"""What Prefect, MLflow and the libraries of data and report take in addition, in the process of a run on a CPU, which
is its own worker: measured in whole runs by `python -m benchmarks.memory`."""

HOLES_ON_CPU: Final = 0.25
"""What malloc holds between the blocks of tensors at the peak of an update, as a share of the update's memory: 0.2 to
0.3 where all weights are trained and activations are kept, measured by `python -m benchmarks.memory`. glibc before 2.38
cannot fill a freed block with an aligned one of the same size."""

HOLES_RECOMPUTED: Final = 1.1
"""The same where activations are computed again, which takes and frees blocks of every layer once more: 1.0 to 1.2."""

HOLES_WITH_ADAPTERS: Final = 1.5
"""The same with LoRA, where no gradients and moments fill the holes."""

CONTEXT_BYTES: Final = 2 * GIB
"""What a GPU loses before any tensor: CUDA's context and kernels (0.5 to 0.6 GiB a process on an H100), the workspaces
of cuBLAS and of attention kernels, and what vLLM leaves behind when it sleeps. An estimate."""

FRAGMENTATION: Final = 0.05
"""Share of an update's memory that CUDA's allocator holds in blocks that no tensor uses: 5 to 10 % without, and about
half of it with expandable segments. An estimate."""

HOST_LIBRARIES_BYTES: Final = 6 * GIB
"""Resident memory of the process of a run and of its worker's, with the libraries of CUDA. An estimate."""

LOCAL_RAY_BYTES: Final = int(1.1 * GIB)
"""What a local cluster takes on a machine with a GPU: 0.63 GiB for the services of Ray 2.60 (resident memory, summed),
and its object store of 0.5 GiB, if messages have filled it once."""

USABLE: Final = 0.92
"""Share of a GPU's memory that a forecast may fill. The rest is for what a forecast does not know: other programs,
workspaces of kernels and of NCCL."""

PATCHES_BYTES: Final = 4 * GIB
"""Most bytes of the patches of images (rl_core.models.pixels)."""

# Names of rows.
RUN_LIBRARIES: Final = "libraries of the run"
FRAGMENTS: Final = "fragmentation"
CHECKPOINT: Final = "copy of a checkpoint"
DRIVER: Final = "reserved by the driver"
CONTEXT: Final = "CUDA context and workspaces"
GRAPHS: Final = "engine CUDA graphs"


def memory_forecast(
    config: RunConfig, sizes: ModelSizes, *, gpu_gib: float | None = None, response: int | None = None
) -> MemoryForecast:
    """The forecast for a worker; with `cluster.placement: split`, for a worker of either kind.

    Args:
        config: A config in which every `auto` is resolved (rl_core.planning.settings).
        gpu_gib: Memory of the GPU; 0 leaves out the KV cache. None for a worker on the CPU.
        response: Tokens of each response; None for the worst of all lengths (`update_pass`).
    """
    on_gpu = gpu_gib is not None
    part = part_of(sizes, shards(config.cluster))
    engine = engine_part(config.cluster, sizes)
    weights = engine.parameters * BYTES[config.model.dtype]
    cache = (
        cpu_cache_bytes(config, engine)
        if gpu_gib is None
        else gpu_cache_bytes(config, engine, gpu_gib=gpu_gib, weights=weights)
    )
    rows = [
        *_process_rows(config, on_gpu=on_gpu),
        *_policy_rows(config, part),
        *_engine_rows(config, engine, cache=cache, on_gpu=on_gpu),
        *sync_rows(config, sizes, on_gpu=on_gpu),
        *update_rows(config, sizes, response=response, on_gpu=on_gpu),
        *reference_rows(config, sizes, response=response, on_gpu=on_gpu),
        _row("pieces of an optimizer step", piece_bytes(config, sizes), "optimizer step"),
    ]
    if config.critic is not None:
        rows += _critic_rows(config, sizes, part, config.critic, response=response, on_gpu=on_gpu)
    if config.cold_start is not None:
        rows.append(_cold_start_row(config, config.cold_start, sizes, part, response=response, on_gpu=on_gpu))
    rows.append(_unused_row(rows, share=FRAGMENTATION if on_gpu else _holes(config)))
    if not on_gpu:
        rows.append(_saved_row(config, part))
    return MemoryForecast(
        rows=_present(rows),
        host_rows=_present([*_host_rows(config, part)]) if on_gpu else (),
        kept=0.0 if on_gpu else KEPT_ON_CPU,
        cached_sequences=cache // sequence_bytes(config, engine),
        workers_per_machine=config.cluster.devices,
        generating_per_machine=config.cluster.generating_devices if config.cluster.is_split else 0,
    )


def _holes(config: RunConfig) -> float:
    if config.model.lora is not None:
        return HOLES_WITH_ADAPTERS
    return HOLES_RECOMPUTED if config.model.recomputes_activations else HOLES_ON_CPU


def _unused_row(rows: list[MemoryRow], *, share: float) -> MemoryRow:
    """What the allocator holds in an update without a tensor in it: a share of what the update takes at its most."""
    passing = [row for row in rows if row.moments != ALWAYS]
    largest = total_gib(passing, largest_moment(passing, UPDATE))
    return _row(FRAGMENTS, int(share * largest * GIB), *UPDATE)


def _saved_row(config: RunConfig, part: ModelSizes) -> MemoryRow:
    """What a save takes on a CPU: a copy of the checkpoint that stays, or the master weights for a moment."""
    if config.trainer.async_save:
        return _row(CHECKPOINT, checkpoint_bytes(config, part))
    joined = sum(state.numbers for state in _states(config, part)) if config.model.dtype == "bfloat16" else 0
    return _row("master weights of a checkpoint", joined, "save")


def _process_rows(config: RunConfig, *, on_gpu: bool) -> Iterator[MemoryRow]:
    """What the process of a worker takes before any tensor, and the graphs of one that generates: of each kind of
    worker where some only generate."""
    is_split = config.cluster.is_split
    for moments in (ALWAYS, GENERATE) if is_split else (ALWAYS,):
        if not on_gpu:
            yield _row("libraries", LIBRARIES_BYTES, *moments)
            continue
        yield _row(DRIVER, DRIVER_BYTES, *moments)
        yield _row(CONTEXT, CONTEXT_BYTES, *moments)
        if moments == GENERATE or not is_split:
            yield _row(GRAPHS, graph_bytes(config), *moments)
    if not on_gpu and config.cluster.is_alone:
        yield _row(RUN_LIBRARIES, RUN_LIBRARIES_BYTES)


def _policy_rows(config: RunConfig, part: ModelSizes) -> Iterator[MemoryRow]:
    """What the worker holds of the policy, with what its optimizer keeps on the device, and of the reference."""
    frozen = part.parameters * BYTES[config.model.dtype]
    trained = _policy_state(config, part)
    if config.model.lora is not None:
        yield _row("weights", frozen)
        yield _row("adapters", trained.weights)
    else:
        yield _row("weights", frozen + trained.weights - trained.parameters * BYTES[config.model.dtype])
        if config.algorithm.kl is not None:
            yield _row("reference weights", frozen, *_reference_moments(config))
    yield _row("optimizer state", _on_device(config, trained))
    yield _row("gradients", trained.gradients, *BACKWARD, "optimizer step")


def _engine_rows(config: RunConfig, part: ModelSizes, *, cache: int, on_gpu: bool) -> Iterator[MemoryRow]:
    """The worker's part of the generator. On a CPU it keeps its weights and its cache while it sleeps, in a worker that
    trains too."""
    moments = GENERATE if on_gpu or config.cluster.is_split else ALWAYS
    yield _row("engine weights", part.parameters * BYTES[config.model.dtype], *moments)
    if (lora := config.model.generator_lora) is not None:
        yield _row("engine adapters", adapter_parameters(lora, part) * BYTES[config.model.dtype], *moments)
    yield _row("engine KV cache", cache, *moments)
    yield _row("engine forward pass", engine_work_bytes(config, part, on_gpu=on_gpu), "sampling")


def _critic_rows(
    config: RunConfig, sizes: ModelSizes, part: ModelSizes, critic: CriticConfig, *, response: int | None, on_gpu: bool
) -> list[MemoryRow]:
    """A second model with all that training needs. Its head has one output, and is not counted."""
    state = _whole_state(config, critic.optim, part)
    at_rest: tuple[Moment, ...] = ("update of the critic",) if config.trainer.offloads == "all" else ALWAYS
    passing = critic_pass_bytes(config, sizes, critic, response=response, on_gpu=on_gpu)
    gathered = gathered_embedding_bytes(config, sizes) + gathered_layer_bytes(config, sizes)
    return [
        _row("critic's weights", state.weights, *at_rest),
        _row("critic's optimizer state", _on_device(config, state)),
        _row("critic's gradients", state.gradients, "update of the critic"),
        _row("critic's activations", passing, "update of the critic"),
        _row("critic's gathered weights", gathered, "update of the critic"),
    ]


def _cold_start_row(
    config: RunConfig,
    cold_start: ColdStartConfig,
    sizes: ModelSizes,
    part: ModelSizes,
    *,
    response: int | None,
    on_gpu: bool,
) -> MemoryRow:
    """Memory of the cold start. It trains all weights, and no generator runs meanwhile."""
    state = _whole_state(config, cold_start.optim, part)
    model = config.model.model_copy(update={"lora": None, "freeze_vision_tower": False})
    whole = config.model_copy(update={"model": model})
    passes = [*update_rows(whole, sizes, response=response, on_gpu=on_gpu)]
    passing = int(total_gib(passes, largest_moment(passes, BACKWARD)) * GIB)
    num_bytes = state.weights + _on_device(config, state) + state.gradients + passing
    return _row("cold start, all of it", num_bytes, "cold start")


def _host_rows(config: RunConfig, part: ModelSizes) -> Iterator[MemoryRow]:
    """What takes the memory of a machine with a GPU. Of a cluster that is joined, Ray's part is not known here."""
    states = _states(config, part)
    ray = LOCAL_RAY_BYTES if config.cluster.address == "local" else 0
    yield _row("processes and libraries", HOST_LIBRARIES_BYTES + ray)
    yield _row("patches of images", PATCHES_BYTES if part.vision_parameters else 0)
    if config.trainer.offloads != "none":
        yield _row("optimizer state", sum(state.optimizer for state in states))
    if config.trainer.offloads == "all":
        with_reference = config.algorithm.kl is not None and config.model.lora is None
        yield _row("reference weights", part.parameters * BYTES[config.model.dtype] if with_reference else 0)
        yield _row("critic's weights", sum(state.weights for state in states[1:]))
    yield _row(CHECKPOINT, checkpoint_bytes(config, part), *(ALWAYS if config.trainer.async_save else ("save",)))


def _states(config: RunConfig, part: ModelSizes) -> list[TrainingState]:
    """What RL keeps of the policy and, if there is one, of the critic."""
    policy = _policy_state(config, part)
    return [policy] if config.critic is None else [policy, _whole_state(config, config.critic.optim, part)]


def _policy_state(config: RunConfig, part: ModelSizes) -> TrainingState:
    return rl_training_state(config.model, config.actor.optim, part, sharded=is_sharded(config.cluster))


def _whole_state(config: RunConfig, optim: OptimConfig, part: ModelSizes) -> TrainingState:
    return whole_training_state(config.model, optim, part, sharded=is_sharded(config.cluster))


def _reference_moments(config: RunConfig) -> tuple[Moment, ...]:
    """When the reference is on the device: with a full KL it computes in the update too."""
    if config.trainer.offloads != "all":
        return ALWAYS
    is_full = config.algorithm.kl is not None and config.algorithm.kl.penalty == "full"
    return (*BACKWARD, "optimizer step", "pass of the reference") if is_full else ("pass of the reference",)


def _on_device(config: RunConfig, state: TrainingState) -> int:
    return state.optimizer if config.trainer.offloads == "none" else 0


def _row(name: str, num_bytes: int, *moments: Moment) -> MemoryRow:
    return MemoryRow(name=name, num_bytes=num_bytes, moments=moments or ALWAYS)


def _present(rows: list[MemoryRow]) -> tuple[MemoryRow, ...]:
    return tuple(row for row in rows if row.num_bytes)

"""A forecast of a run's memory, as rows that a person can add up (docs/memory.md, "The forecast")."""

from collections.abc import Iterator
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.config.training import ColdStartConfig, CriticConfig
from rl_core.planning.activations import activation_bytes, experience_bytes, layer_bytes, logit_bytes, vision_bytes
from rl_core.planning.disk import checkpoint_bytes
from rl_core.planning.engine_memory import (
    cpu_cache_bytes,
    engine_work_bytes,
    gpu_cache_bytes,
    graph_bytes,
    sequence_bytes,
)
from rl_core.planning.memory_rows import GIB, MemoryForecast, MemoryRow, Phase
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.training_state import BYTES, TrainingState, rl_training_state, whole_training_state

LIBRARIES_BYTES: Final = int(0.88 * GIB)
"""Resident memory of a process with torch, transformers, vLLM and an engine of a tiny model on a CPU: measured by
`python -m benchmarks.memory` (the configuration of 1 M parameters)."""

KEPT_ON_CPU: Final = 0.8
"""Share of the memory of an update that malloc keeps afterwards, measured by `python -m benchmarks.memory`: freed
blocks of less than 32 MiB stay in the process (M_MMAP_THRESHOLD_MAX of glibc)."""

CONTEXT_BYTES: Final = 2 * GIB
"""What a GPU loses before any tensor: CUDA's context and kernels (0.5 to 0.6 GiB a process on an H100), the workspaces
of cuBLAS and of attention kernels, and what vLLM leaves behind when it sleeps. An estimate."""

FRAGMENTATION: Final = 0.05
"""Share of an update's memory that CUDA's allocator holds in blocks that no tensor uses: 5 to 10 % without, and about
half of it with expandable segments. An estimate."""

HOST_LIBRARIES_BYTES: Final = 6 * GIB
"""Resident memory, on a machine with a GPU, of the process of a run and of its worker's, with the libraries of CUDA. An
estimate."""

PATCHES_BYTES: Final = 4 * GIB
"""Most bytes of the patches of images (rl_core.models.pixels)."""


CHECKPOINT: Final = "copy of a checkpoint"
"""The name of the row of what `trainer.async_save` writes from while the next step runs. It is kept for the next
save."""

GRAPHS: Final = "engine CUDA graphs"
"""The name of the row of vLLM's CUDA graphs, which stay while it sleeps."""


def memory_forecast(config: RunConfig, sizes: ModelSizes, *, gpu_gib: float | None = None) -> MemoryForecast:
    """The forecast for a worker.

    Args:
        config: The run's config, in which every `auto` is settled (rl_core.planning.settings).
        sizes: Sizes of its model.
        gpu_gib: Memory of the GPU in GiB; 0 leaves out the KV cache. None for a worker on the CPU.
    """
    on_gpu = gpu_gib is not None
    weights = sizes.parameters * BYTES[config.model.dtype]
    cache = (
        cpu_cache_bytes(config, sizes)
        if gpu_gib is None
        else gpu_cache_bytes(config, sizes, gpu_gib=gpu_gib, weights=weights)
    )
    rows = [
        *_process_rows(config, on_gpu=on_gpu),
        *_policy_rows(config, sizes),
        *_engine_rows(config, sizes, cache=cache, on_gpu=on_gpu),
        *_pass_rows(config, sizes),
    ]
    if config.critic is not None:
        rows += _critic_rows(config, sizes, config.critic)
    if config.cold_start is not None:
        rows.append(_cold_start_row(config, config.cold_start, sizes))
    if on_gpu:
        rows.append(_row("fragmentation", int(FRAGMENTATION * _sum(rows, "update")), "update"))
    elif config.trainer.async_save:
        rows.append(_row(CHECKPOINT, checkpoint_bytes(config, sizes)))
    elif config.model.dtype == "bfloat16":
        rows.append(
            _row("master weights of a checkpoint", sum(state.numbers for state in _states(config, sizes)), "save")
        )
    return MemoryForecast(
        rows=_present(rows),
        host_rows=_present([*_host_rows(config, sizes)]) if on_gpu else (),
        kept=0.0 if on_gpu else KEPT_ON_CPU,
        cached_sequences=cache // sequence_bytes(config, sizes),
    )


def _process_rows(config: RunConfig, *, on_gpu: bool) -> Iterator[MemoryRow]:
    if on_gpu:
        yield _row("CUDA context and workspaces", CONTEXT_BYTES)
        yield _row(GRAPHS, graph_bytes(config, on_gpu=True))
    else:
        yield _row("libraries", LIBRARIES_BYTES)


def _policy_rows(config: RunConfig, sizes: ModelSizes) -> Iterator[MemoryRow]:
    """The policy with what its optimizer keeps on the device, and the reference."""
    weights = sizes.parameters * BYTES[config.model.dtype]
    trained = rl_training_state(config.model, config.actor.optim, sizes)
    yield _row("weights", weights)
    if config.model.lora is not None:
        yield _row("adapters", trained.weights)
    elif config.algorithm.kl is not None:
        yield _row("reference weights", weights, _reference_phase(config))
        if _reference_phase(config) == "reference":
            yield _row("passes of the reference", experience_bytes(config, sizes), "reference")
    yield _row("optimizer state", _on_device(config, trained))
    yield _row("gradients", trained.gradients, "update")


def _engine_rows(config: RunConfig, sizes: ModelSizes, *, cache: int, on_gpu: bool) -> Iterator[MemoryRow]:
    """The generator. On a CPU it keeps its weights and its cache while it sleeps."""
    phase: Phase = "generate" if on_gpu else "always"
    yield _row("engine weights", sizes.parameters * BYTES[config.model.dtype], phase)
    yield _row("engine KV cache", cache, phase)
    yield _row("engine forward pass", engine_work_bytes(config, sizes, on_gpu=on_gpu), "generate")


def _pass_rows(config: RunConfig, sizes: ModelSizes) -> Iterator[MemoryRow]:
    actor = config.actor
    yield _row("activations of the language model", activation_bytes(config, sizes, actor), "update")
    yield _row("activations of the vision tower", vision_bytes(config, sizes, actor), "update")
    yield _row("the layer in its backward pass", layer_bytes(config, sizes, actor), "update")
    yield _row("logits of a chunk", logit_bytes(config, sizes), "update")


def _critic_rows(config: RunConfig, sizes: ModelSizes, critic: CriticConfig) -> list[MemoryRow]:
    """A second model with all that training needs. Its head has one output, and is not counted."""
    state = whole_training_state(config.model, critic.optim, sizes)
    activations = activation_bytes(config, sizes, critic) + vision_bytes(config, sizes, critic)
    at_rest: Phase = "update critic" if config.trainer.offloads == "all" else "always"
    return [
        _row("critic's weights", state.weights, at_rest),
        _row("critic's optimizer state", _on_device(config, state)),
        _row("critic's gradients", state.gradients, "update critic"),
        _row("critic's activations", activations + layer_bytes(config, sizes, critic), "update critic"),
    ]


def _cold_start_row(config: RunConfig, cold_start: ColdStartConfig, sizes: ModelSizes) -> MemoryRow:
    """Memory of the cold start. It trains all weights, and no generator runs beside it."""
    state = whole_training_state(config.model, cold_start.optim, sizes)
    kept = activation_bytes(config, sizes, config.actor) + vision_bytes(config, sizes, config.actor)
    passing = kept + layer_bytes(config, sizes, config.actor) + logit_bytes(config, sizes)
    num_bytes = state.weights + _on_device(config, state) + state.gradients + passing
    return _row("cold start, all of it", num_bytes, "cold start")


def _host_rows(config: RunConfig, sizes: ModelSizes) -> Iterator[MemoryRow]:
    """What takes the machine's memory beside a GPU. There is no object store of Ray."""
    states = _states(config, sizes)
    yield _row("processes and libraries", HOST_LIBRARIES_BYTES)
    yield _row("patches of images", PATCHES_BYTES if sizes.vision_parameters else 0)
    if config.trainer.offloads != "none":
        yield _row("optimizer state", sum(state.optimizer for state in states))
    if config.trainer.offloads == "all":
        with_reference = config.algorithm.kl is not None and config.model.lora is None
        yield _row("reference weights", sizes.parameters * BYTES[config.model.dtype] if with_reference else 0)
        yield _row("critic's weights", sum(state.weights for state in states[1:]))
    yield _row(CHECKPOINT, checkpoint_bytes(config, sizes), "always" if config.trainer.async_save else "save")


def _states(config: RunConfig, sizes: ModelSizes) -> list[TrainingState]:
    """What RL keeps of the policy and, if there is one, of the critic."""
    policy = rl_training_state(config.model, config.actor.optim, sizes)
    if config.critic is None:
        return [policy]
    return [policy, whole_training_state(config.model, config.critic.optim, sizes)]


def _reference_phase(config: RunConfig) -> Phase:
    """When the reference is on the device: with a full KL it computes in the update too."""
    if config.trainer.offloads != "all":
        return "always"
    is_full = config.algorithm.kl is not None and config.algorithm.kl.penalty == "full"
    return "update" if is_full else "reference"


def _on_device(config: RunConfig, state: TrainingState) -> int:
    return state.optimizer if config.trainer.offloads == "none" else 0


def _row(name: str, num_bytes: int, phase: Phase = "always") -> MemoryRow:
    return MemoryRow(name=name, num_bytes=num_bytes, phase=phase)


def _sum(rows: list[MemoryRow], phase: Phase) -> int:
    return sum(row.num_bytes for row in rows if row.phase == phase)


def _present(rows: list[MemoryRow]) -> tuple[MemoryRow, ...]:
    return tuple(row for row in rows if row.num_bytes)

"""A run that does not fit into memory, and the cheapest changes with which it does, by the forecast."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rl_core.config.model import LoraConfig
from rl_core.config.run import RunConfig
from rl_core.planning.engine_memory import engine_part, sequence_bytes
from rl_core.planning.gpu import Gpu
from rl_core.planning.memory import USABLE, memory_forecast
from rl_core.planning.memory_rows import GIB, MemoryForecast
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.settings import Change, auto_keys, configured, resolve_auto, with_changes
from rl_core.planning.update_memory import PATCHES_A_TOKEN
from rl_core.problem import Problem

CHUNKS: Final = (1024, 512, 256)
"""Smaller values of `model.log_prob_chunk_tokens`. Below the last one the logits hardly count, and the output head
computes slowly."""

SHORTEST_PROMPT: Final = 256
"""Prompts are not proposed to be shorter than this, in tokens: an image of 400 x 400 pixels and its question."""

_IMAGE_SHARE: Final = 0.75
"""The part of a prompt that an image may take, which leaves the rest to text."""

FEWEST_SEQUENCES: Final = 8
"""Longest sequences in a GPU's KV cache with which a run is taken to fit. With fewer, a decode step reads all weights
for a few tokens, and generating takes many times as long as it could."""

MOST_GPUS: Final = 64
"""Most GPUs that are proposed."""

_GPUS_A_MACHINE: Final = 8
"""GPUs of a usual machine: beyond these another machine is proposed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryLimit:
    """The memory that a run may take: of a GPU, or of the machine if the run computes on its CPU."""

    gib: float
    on_gpu: bool

    @property
    def usable_gib(self) -> float:
        """What a forecast may fill."""
        return USABLE * self.gib if self.on_gpu else self.gib

    def resolved(self, config: RunConfig, sizes: ModelSizes) -> RunConfig:
        """The config in which no setting is `auto`."""
        return resolve_auto(config, sizes, Gpu(memory_gib=self.gib) if self.on_gpu else None).config

    def forecast(self, config: RunConfig, sizes: ModelSizes) -> MemoryForecast:
        """What a run takes, with the settings that suit it best."""
        return memory_forecast(self.resolved(config, sizes), sizes, gpu_gib=self.gib if self.on_gpu else None)

    def needed_gib(self, forecast: MemoryForecast) -> float:
        """The part of a forecast that has to fit."""
        return forecast.peak_gib if self.on_gpu else forecast.machine_gib

    def fewest_sequences(self, config: RunConfig) -> int:
        """Longest sequences that the generator's cache has to hold: on a GPU `FEWEST_SEQUENCES`, or all of a step."""
        return min(FEWEST_SEQUENCES, config.data.rollout_batch_size * config.rollout.n) if self.on_gpu else 1

    def fits(self, config: RunConfig, sizes: ModelSizes) -> bool:
        """Whether a run fits, with enough sequences in the generator's cache, on workers that there can be."""
        if not is_possible(config, sizes):
            return False
        forecast = self.forecast(config, sizes)
        is_enough = forecast.cached_sequences >= self.fewest_sequences(config)
        return is_enough and self.needed_gib(forecast) <= self.usable_gib


def memory_problems(
    config: RunConfig, sizes: ModelSizes, *, available_gib: float, on_gpu: bool, host_gib: float | None = None
) -> list[Problem]:
    """Everything that does not fit: the run, a sequence into the KV cache, and what a run on GPUs takes of
    `host_gib`."""
    limit = MemoryLimit(gib=available_gib, on_gpu=on_gpu)
    forecast = limit.forecast(config, sizes)
    too_large = _size_problem(config, sizes, forecast, limit)
    checks = (
        too_large,
        _host_problem(forecast, host_gib),
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
    forecast = limit.forecast(with_changes(config, changes), sizes)
    cached = f", {forecast.cached_sequences:,} longest sequences in the KV cache" if limit.on_gpu else ""
    return f"set {', '.join(map(str, changes))} (then about {limit.needed_gib(forecast):.1f} GiB are needed{cached})"


def _host_problem(forecast: MemoryForecast, host_gib: float | None) -> Problem | None:
    if host_gib is None or forecast.machine_gib <= host_gib:
        return None
    largest = max(forecast.host_rows, key=lambda row: row.num_bytes)
    return Problem(
        where="memory of this machine",
        what=f"about {forecast.machine_gib:.1f} GiB are needed besides the GPU's{_by_workers(forecast)} and "
        f"{host_gib:.1f} GiB are there; the largest part is {largest.name}, {largest.gib:.1f} GiB",
        fix="offload less (trainer.offload), set trainer.save_model_only, train adapters (model.lora), or take more "
        "machines with fewer GPUs",
        fatal=False,
    )


def _by_workers(forecast: MemoryForecast) -> str:
    return f" by {forecast.workers_per_machine} workers" if forecast.workers_per_machine > 1 else ""


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


def fitting_changes(config: RunConfig, sizes: ModelSizes, limit: MemoryLimit) -> list[Change] | None:
    """The cheapest changes with which the run fits, each of which is needed; None if none are enough. First those that
    cost time alone are tried, then those that round more, then those that train less."""
    made: list[Change] = []
    for change in _possible_changes(config, sizes, on_gpu=limit.on_gpu):
        if change.key.startswith("cluster.") and not is_possible(with_changes(config, [*made, change]), sizes):
            continue
        made.append(change)
        if limit.fits(with_changes(config, made), sizes):
            return _shown(config, sizes, limit, _needed(config, sizes, limit, made))
    return None


def changes_to_more_gpus(config: RunConfig, sizes: ModelSizes, limit: MemoryLimit) -> list[Change] | None:
    """The changes to `cluster` with which the run fits on the fewest more GPUs of this size; None up to `MOST_GPUS`."""
    return next((changes for changes in _wider(config) if limit.fits(with_changes(config, changes), sizes)), None)


def _possible_changes(config: RunConfig, sizes: ModelSizes, *, on_gpu: bool) -> Iterator[Change]:
    owners = ["actor", "critic"] if config.critic is not None else ["actor"]
    # The trainer computes the same in smaller passes, or a second time.
    if on_gpu:
        yield from (Change.of(key, "auto") for key in auto_keys(config) if configured(config, key) != "auto")
    else:
        kinds = ("update", "experience")
        yield from (
            Change.of(f"{owner}.micro_batch_size_per_device_for_{kind}", 1) for owner in owners for kind in kinds
        )
        if config.trainer.async_save:
            yield Change.of("trainer.async_save", False)
        if not config.model.recomputes_activations:
            yield Change.of("model.gradient_checkpointing", True)
    smaller = (tokens for tokens in CHUNKS if tokens < config.model.log_prob_chunk_tokens)
    yield from (Change.of("model.log_prob_chunk_tokens", tokens) for tokens in smaller)
    yield from _cluster_changes(config)
    # It rounds more.
    if config.model.dtype != "bfloat16":
        yield Change.of("model.dtype", "bfloat16")
    for owner in owners:
        if configured(config, f"{owner}.optim.strategy") != "adamw_bf16":
            yield Change.of(f"{owner}.optim.strategy", "adamw_bf16")
    # It trains less.
    if config.model.lora is None:
        if sizes.vision_parameters and not config.model.freeze_vision_tower:
            yield Change.of("model.freeze_vision_tower", True)
        lora = LoraConfig()
        yield Change(key="model.lora", value=lora, shown=f"{{rank: {lora.rank}}}")
    yield from _shorter_prompts(config, sizes)


def _shorter_prompts(config: RunConfig, sizes: ModelSizes) -> Iterator[Change]:
    """Prompts of a half, a quarter and so on of the length. Rows with longer ones are left out, and images have to be
    made smaller with them (`data.max_pixels`)."""
    pixels_a_token = PATCHES_A_TOKEN * sizes.patch_size**2
    tokens = config.data.max_prompt_length // 2
    while tokens >= SHORTEST_PROMPT:
        pixels = int(_IMAGE_SHARE * tokens * pixels_a_token)
        note = f" with data.max_pixels {pixels}" if 0 < pixels < config.data.max_pixels else ""
        yield Change(key="data.max_prompt_length", value=tokens, shown=f"{tokens}", note=note)
        tokens //= 2


def _needed(config: RunConfig, sizes: ModelSizes, limit: MemoryLimit, changes: Sequence[Change]) -> list[Change]:
    """Those of the changes without which the run does not fit, given up from the most expensive to the cheapest."""
    needed = list(changes)
    for change in reversed(changes):
        fewer = [other for other in needed if other is not change]
        if limit.fits(with_changes(config, fewer), sizes):
            needed = fewer
    return needed


def _shown(config: RunConfig, sizes: ModelSizes, limit: MemoryLimit, changes: Sequence[Change]) -> list[Change]:
    resolved = limit.resolved(with_changes(config, changes), sizes)
    return [
        Change.of(change.key, configured(resolved, change.key)) if change.value == "auto" else change
        for change in changes
    ]


def is_possible(config: RunConfig, sizes: ModelSizes) -> bool:
    """Whether the workers can be put together, and can share the layers of the model equally."""
    cluster = config.cluster
    if any(problem.fatal for problem in cluster.problems()):
        return False
    return not (
        sizes.why_heads_not_shared(cluster.sequence_parallel_size)
        or sizes.why_layers_not_shared(cluster.tensor_parallel_size)
    )


def _cluster_changes(config: RunConfig) -> Iterator[Change]:
    """Changes with which the workers share more, those that cost less time first. Not all of them are possible."""
    cluster = config.cluster
    if cluster.is_split:
        yield Change.of("cluster.placement", "colocated")
    if cluster.nodes > 1 and cluster.sharding == "none":
        yield Change.of("cluster.sharding", "hybrid")
    if cluster.ranks > 1 and cluster.sharding != "full":
        yield Change.of("cluster.sharding", "full")
    for key, size in {
        "cluster.tensor_parallel_size": cluster.tensor_parallel_size,
        "cluster.sequence_parallel_size": cluster.sequence_parallel_size,
    }.items():
        yield from (Change.of(key, more) for more in range(size + 1, cluster.devices + 1))


def _wider(config: RunConfig) -> Iterator[list[Change]]:
    """Changes that spread a run over more GPUs, the fewest first: over a machine and then over more of them, twice as
    many each time, with generators on one worker, on two and so on."""
    cluster = config.cluster
    devices, nodes = cluster.devices, cluster.nodes
    while 2 * nodes * devices <= MOST_GPUS:
        devices, nodes = (2 * devices, nodes) if 2 * devices <= _GPUS_A_MACHINE else (devices, 2 * nodes)
        wanted = {"nodes": nodes, "devices": devices, "sharding": "full"}
        if nodes > 1 and cluster.address == "local":
            wanted["address"] = "auto"
        spread = [Change.of(f"cluster.{key}", value) for key, value in wanted.items() if getattr(cluster, key) != value]
        yield spread
        for size in range(cluster.tensor_parallel_size + 1, devices + 1):
            yield [*spread, Change.of("cluster.tensor_parallel_size", size)]

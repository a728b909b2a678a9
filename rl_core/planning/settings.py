"""Settings by their dotted keys, and what `auto` becomes for a config, the sizes of its model and a GPU. A number in
the config is obeyed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar, get_args

from rl_core.config.run import RunConfig
from rl_core.config.training import CPU_GPU_SHARE, CPU_SEQUENCES, Offload
from rl_core.planning.batches import longest_sequence
from rl_core.planning.engine_memory import DRIVER_BYTES
from rl_core.planning.gpu import Gpu
from rl_core.planning.memory import CONTEXT, DRIVER, GRAPHS, USABLE, memory_forecast
from rl_core.planning.memory_rows import GIB
from rl_core.planning.model_sizes import ModelSizes
from rl_core.section import Section

MOST_TOKENS: Final = 32_768
"""Tree tokens of a pass beyond which a GPU computes no faster."""

FEWEST_TOKENS: Final = 8192
"""Tree tokens of a pass below which a GPU is not filled: recomputing activations costs less than smaller passes."""

ENOUGH_SEQUENCES: Final = 64
"""Longest sequences in the KV cache with which the generator is taken to be busy; usual ones are shorter, so that more
are decoded at a time."""

LARGEST_SHARE: Final = 0.9
"""The largest `rollout.gpu_memory_utilization` that is chosen."""

_PASSES: Final = ("update", "experience")
_GPU_SHARE: Final = "rollout.gpu_memory_utilization"

AnySection = TypeVar("AnySection", bound=Section)


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Another value of a setting; `auto` leaves it to the forecast. `shown` is how a config file has it, or what `auto`
    becomes, and `note` what a person has to change with it."""

    key: str
    value: Any
    shown: str
    note: str = ""

    @classmethod
    def of(cls, key: str, value: Any) -> Self:
        """The change of a key to a plain value."""
        return cls(key=key, value=value, shown=as_yaml(value))

    def __str__(self) -> str:
        return f"{self.key} to {self.shown}{self.note}"


def as_yaml(value: object) -> str:
    """A plain value as a config file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def configured(section: Section, key: str) -> Any:
    """The value of a key, such as `trainer.offload`."""
    value: Any = section
    for name in key.split("."):
        value = getattr(value, name)
    return value


def changed(section: AnySection, key: str, value: Any) -> AnySection:
    """A copy with another value of a key, which is taken to be valid."""
    name, _, rest = key.partition(".")
    return section.model_copy(update={name: changed(getattr(section, name), rest, value) if rest else value})


def with_changes(section: AnySection, changes: Sequence[Change]) -> AnySection:
    """A copy with these changes, of which a later one of the same key counts."""
    for change in changes:
        section = changed(section, change.key, change.value)
    return section


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedSettings:
    """A config in which no setting is `auto`, what was chosen for those that were, and why."""

    config: RunConfig
    values: Mapping[str, Any]
    """[key] -> what was chosen."""
    why: str


def resolve_auto(config: RunConfig, sizes: ModelSizes | None, gpu: Gpu | None) -> ResolvedSettings:
    """Resolve every setting that is `auto`, for a GPU or a CPU (None); `sizes` are None where they are not known."""
    if gpu is None:
        own = {key: value for key, value in _usual(config).items() if key != _GPU_SHARE}
        return _with_choices(config, own, why="on a CPU")
    if sizes is None or gpu.memory_gib is None:
        unknown = "the model's size" if sizes is None else "the GPU's memory"
        return _with_choices(config, _usual(config), why=f"{unknown} is not known")
    return _fitted(config, sizes, gpu.memory_gib)


def auto_keys(config: RunConfig) -> list[str]:
    """The settings that may be `auto`."""
    return list(_usual(config))


def _usual(config: RunConfig) -> dict[str, Any]:
    """What `auto` is on a CPU."""
    owners = ("actor", "critic") if config.critic is not None else ("actor",)
    passes = {_pass_key(owner, kind): CPU_SEQUENCES[kind] for owner in owners for kind in _PASSES}
    shared = {_GPU_SHARE: CPU_GPU_SHARE, "trainer.offload": "none"}
    return {"model.gradient_checkpointing": False, **passes, **shared}


def _fitted(config: RunConfig, sizes: ModelSizes, gpu_gib: float) -> ResolvedSettings:
    """The first candidate that fits with a cache that keeps the generator busy; else the one with the largest cache;
    else the last one, which takes the least."""
    best, cached = None, 0
    for values in _candidates(config):
        candidate = _with_share(_with_autos(config, values), sizes, gpu_gib)
        forecast = memory_forecast(candidate, sizes, gpu_gib=gpu_gib)
        if forecast.peak_gib <= USABLE * gpu_gib and forecast.cached_sequences > cached:
            best, cached = candidate, forecast.cached_sequences
            if cached >= min(ENOUGH_SEQUENCES, config.data.rollout_batch_size * config.rollout.n):
                break
    chosen = best or candidate
    forecast = memory_forecast(chosen, sizes, gpu_gib=gpu_gib)
    needed = f"{forecast.peak_gib:.1f} GiB of {gpu_gib:.1f}"
    why = f"needs about {needed}" if best else f"takes the least, and needs about {needed}"
    return _with_choices(config, {key: configured(chosen, key) for key in _usual(config)}, why=why)


def _candidates(config: RunConfig) -> Iterator[dict[str, Any]]:
    """Settings from the fastest to the one that takes the least memory. Of passes that fill the GPU it matters little
    how large they are; offloading costs seconds a step, recomputing activations a third of the update, and passes that
    do not fill the GPU more than both."""
    filling, smaller = _sequence_counts(config)
    for recomputes, counts in ((False, filling), (True, filling), (True, smaller)):
        for offload in get_args(Offload):
            for sequences in counts:
                yield {
                    "model.gradient_checkpointing": recomputes,
                    "trainer.offload": offload,
                    **_pass_values(config, sequences),
                }


def _sequence_counts(config: RunConfig) -> tuple[list[int], list[int]]:
    """Numbers of longest sequences, powers of two, the largest first: those whose passes fill a GPU, and the smaller
    ones down to a single sequence. Where a single one is already too much, it is the only number."""
    longest = longest_sequence(config)
    powers = [1 << power for power in reversed(range(15)) if longest << power <= MOST_TOKENS] or [1]
    filling = [number for number in powers if number * longest >= FEWEST_TOKENS] or powers[:1]
    return filling, [number for number in powers if number < filling[-1]] or filling[-1:]


def _pass_values(config: RunConfig, sequences: int) -> dict[str, int]:
    owners = ("actor", "critic") if config.critic is not None else ("actor",)
    sizes = {"update": sequences, "experience": 4 * sequences}
    return {_pass_key(owner, kind): sizes[kind] for owner in owners for kind in _PASSES}


def _with_share(config: RunConfig, sizes: ModelSizes, gpu_gib: float) -> RunConfig:
    """The config with the share of the GPU that the trainer leaves while the generator works."""
    if config.rollout.gpu_memory_utilization != "auto":
        return config
    forecast = memory_forecast(config, sizes, gpu_gib=0.0)
    if forecast.is_split:  # the generator has the device to itself
        taken = sum(row.gib for row in forecast.rows_of("generate") if row.name in (CONTEXT, DRIVER))
    else:  # vLLM counts its graphs within its share
        taken = sum(row.gib for row in forecast.rows_of("always") if row.name != GRAPHS)
        # What it keeps free for its forward pass is there for the sync.
        taken += max(0.0, forecast.moment_gib("weight sync") - forecast.moment_gib("sampling"))
    left = int((USABLE * gpu_gib - taken) / (gpu_gib - DRIVER_BYTES / GIB) * 100) / 100
    return _with_autos(config, {_GPU_SHARE: min(LARGEST_SHARE, max(0.01, left))})


def _with_choices(config: RunConfig, values: Mapping[str, Any], *, why: str) -> ResolvedSettings:
    chosen = {key: value for key, value in values.items() if configured(config, key) == "auto"}
    return ResolvedSettings(config=_with_autos(config, chosen), values=chosen, why=why)


def _with_autos(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    for key, value in values.items():
        if configured(config, key) == "auto":
            config = changed(config, key, value)
    return config


def _pass_key(owner: str, kind: str) -> str:
    return f"{owner}.micro_batch_size_per_device_for_{kind}"

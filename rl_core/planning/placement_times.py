"""The placements that a run's devices allow, and the forecast of a step in each of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rl_core.config.run import RunConfig
from rl_core.planning.batches import longest_sequence
from rl_core.planning.device_rates import DeviceRates
from rl_core.planning.fitting_changes import MemoryLimit
from rl_core.planning.gpu import Gpu
from rl_core.planning.memory import memory_forecast
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.rules import value_problems
from rl_core.planning.settings import settle
from rl_core.planning.step_time import Arrangement, StepTime, step_time
from rl_core.planning.step_work import Lengths, StepWork

RatesOf = Callable[[RunConfig, Lengths], DeviceRates]
"""The rates of the devices for a settled config and the lengths of prompts and responses: sharding, recomputed
activations and what is in the KV cache change them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacementTime:
    """A placement with its forecast.

    Attributes:
        config: The run's config with this placement, its number of generating devices and its staleness.
        time: The seconds of a step.
    """

    config: RunConfig
    time: StepTime

    @property
    def name(self) -> str:
        """`colocated`, `split, 2 of 8 generate`, or the same with `, one step off`."""
        cluster = self.config.cluster
        if not cluster.is_split:
            return "colocated"
        split = f"split, {cluster.generating_devices} of {cluster.devices} generate"
        return f"{split}, one step off" if self.config.rollout.staleness else split


def placement_times(
    config: RunConfig, sizes: ModelSizes | None, gpu: Gpu | None, *, lengths: Lengths, rates_of: RatesOf
) -> list[PlacementTime]:
    """Colocated, split, and split one step off, as far as the config allows them. A split has the configured number of
    generating devices if the config is split, otherwise the number with the shortest step.

    Args:
        config: The run's config.
        sizes: Sizes of its model; None where they are not known.
        gpu: The GPU of each worker; None for workers on the CPU.
        lengths: Of prompts and responses.
        rates_of: The rates of the devices.
    """

    def timed(placed: RunConfig) -> PlacementTime:
        return PlacementTime(config=placed, time=forecast_step(placed, sizes, gpu, lengths=lengths, rates_of=rates_of))

    colocated = [timed(_placed(config, placement="colocated", staleness=0))]
    splits = [[timed(placed) for placed in group] for group in _splits(config, sizes, gpu)]
    return colocated + min(splits, key=lambda group: group[-1].time.step, default=[])


def forecast_step(
    config: RunConfig, sizes: ModelSizes | None, gpu: Gpu | None, *, lengths: Lengths, rates_of: RatesOf
) -> StepTime:
    """The forecast of a step in the placement of the config. The arguments are those of `placement_times`."""
    settled = settle(config, sizes, gpu).config
    arrangement = Arrangement.of(
        settled.cluster, in_flight=in_flight(settled, sizes, gpu, lengths), staleness=settled.rollout.staleness
    )
    return step_time(StepWork.of(settled, lengths), rates_of(settled, lengths), arrangement)


def fastest(times: Sequence[PlacementTime]) -> PlacementTime:
    """The placement with the shortest step; of equal ones the first, which needs no other setting."""
    return min(times, key=lambda placement: placement.time.step)


def in_flight(config: RunConfig, sizes: ModelSizes | None, gpu: Gpu | None, lengths: Lengths) -> int:
    """Most sequences that a generator decodes at a time: those that are configured, or that its KV cache holds when
    they are of usual length."""
    most = config.rollout.max_num_seqs
    if sizes is None or gpu is None or gpu.memory_gib is None:
        return most
    cached = memory_forecast(config, sizes, gpu_gib=gpu.memory_gib).cached_sequences
    usual = lengths.prompt / config.rollout.n + lengths.response  # the responses of a group share its prompt
    return max(1, min(most, int(cached * longest_sequence(config) / usual)))


def _splits(config: RunConfig, sizes: ModelSizes | None, gpu: Gpu | None) -> Iterator[list[RunConfig]]:
    """For each number of generating devices that may be, the config in turn and, if it may be, one step off."""
    cluster = config.cluster
    numbers = [cluster.generating_devices] if cluster.is_split else range(1, cluster.devices)
    for number in numbers:
        configs = [
            _placed(config, placement="split", generating_devices=number, staleness=staleness) for staleness in (0, 1)
        ]
        if allowed := [placed for placed in configs if _is_allowed(placed) and _fits(placed, sizes, gpu)]:
            yield allowed


def _is_allowed(config: RunConfig) -> bool:
    """Whether `plan` would refuse neither the placement nor the staleness."""
    return not any(
        problem.fatal and problem.where.startswith(("cluster", "rollout.staleness"))
        for problem in value_problems(config)
    )


def _fits(config: RunConfig, sizes: ModelSizes | None, gpu: Gpu | None) -> bool:
    """Whether the placement fits into the GPUs, as far as their memory and the model's size are known."""
    if sizes is None or gpu is None or gpu.memory_gib is None:
        return True
    return MemoryLimit(gib=gpu.memory_gib, on_gpu=True).fits(config, sizes)


def _placed(config: RunConfig, *, staleness: int, **cluster: object) -> RunConfig:
    return config.model_copy(
        update={
            "cluster": config.cluster.model_copy(update=cluster),
            "rollout": config.rollout.model_copy(update={"staleness": staleness}),
        }
    )

"""The forecast of step time for a plan: from measured steps of the run, or else from what is published of its GPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from rl_core.config.run import RunConfig
from rl_core.planning.assumed_rates import ARITHMETIC_EFFICIENCY, MEMORY_EFFICIENCY, assumed_rates
from rl_core.planning.gpu import Gpu
from rl_core.planning.gpu_cards import CARDS, card_named
from rl_core.planning.measured_rates import EQUAL_PARTS, MeasuredStep, measured_rates
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.placement_times import PlacementTime, in_flight, placement_times
from rl_core.planning.settings import settle
from rl_core.planning.step_work import USUAL_SHARE, Lengths
from rl_core.run_directory import RunDirectory
from tasks.results.measured_steps import measured_steps


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """The forecast of a step.

    Attributes:
        placements: Each placement that the devices allow; empty where nothing is known of the devices' speed.
        told: A sentence: where the rates of the devices come from, or what is not known.
    """

    placements: Sequence[PlacementTime] = ()
    told: str


def step_times(config: RunConfig, sizes: ModelSizes | None, run: RunDirectory, gpu: Gpu | None) -> StepTimes:
    """The forecast for a run.

    Args:
        config: Its config.
        sizes: Sizes of its model; None where they are not known.
        run: Its folder, which need not exist.
        gpu: The GPU of each worker; None for workers on the CPU.
    """
    settled, assumed = settle(config, sizes, gpu).config, Lengths.assumed(config)
    card = None if gpu is None else card_named(gpu.name)
    at_once = in_flight(settled, sizes, gpu, assumed)
    if steps := measured_steps(run, settled, in_flight=at_once, gpu=gpu):
        lengths = _mean_lengths(steps)
        is_known = card is not None and sizes is not None
        shape = assumed_rates(settled, sizes, card, lengths) if card and sizes else EQUAL_PARTS
        rates = measured_rates(steps, shape)
        return StepTimes(
            placements=placement_times(config, sizes, gpu, lengths=lengths, rates_of=lambda _: rates),
            told=_measured_words(steps, lengths) + ("" if is_known else _PROPORTIONAL),
        )
    if sizes is None or card is None:
        return StepTimes(told=_unknown_words(sizes, gpu))
    return StepTimes(
        placements=placement_times(
            config, sizes, gpu, lengths=assumed, rates_of=lambda placed: assumed_rates(placed, sizes, card, assumed)
        ),
        told=f"assumed from the data sheet of {card.name}, at {MEMORY_EFFICIENCY:.0%} of its bandwidth and "
        f"{ARITHMETIC_EFFICIENCY:.0%} of its arithmetic, for prompts and responses of {USUAL_SHARE:.0%} of the longest "
        "length, without rewards; after the first steps the run's own seconds are taken",
    )


_PROPORTIONAL = (
    "; where all were on the same number of workers, a worker with half the work is taken to need half the time"
)


def _mean_lengths(steps: Sequence[MeasuredStep]) -> Lengths:
    lengths = [step.work.lengths for step in steps]
    return Lengths(
        prompt=mean(one.prompt for one in lengths),
        response=mean(one.response for one in lengths),
        longest=mean(one.longest for one in lengths),
    )


def _measured_words(steps: Sequence[MeasuredStep], lengths: Lengths) -> str:
    return (
        f"measured in {len(steps)} steps of this run, with responses of {lengths.response:.0f} tokens on average and "
        f"{lengths.longest:.0f} at most"
    )


def _unknown_words(sizes: ModelSizes | None, gpu: Gpu | None) -> str:
    if gpu is None:
        return "not known: nothing is published of this CPU's speed; plan again after some steps on as many workers"
    if sizes is None:
        return "not known: the model is not here yet, or its parameters could not be counted"
    named = f"nothing is known of the speed of {gpu.name}" if gpu.name else "the kind of GPU is not known"
    return f"not known: {named}; name one like it ({', '.join(CARDS)}) with --gpu, or plan again after some steps"

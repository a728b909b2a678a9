"""The forecast of step time for a plan: from measured steps of the run, or else from what is published of its GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.planning.assumed_rates import ARITHMETIC_EFFICIENCY, MEMORY_EFFICIENCY, assumed_rates
from rl_core.planning.gpu import Gpu
from rl_core.planning.gpu_cards import CARDS, card_named
from rl_core.planning.measured_rates import EQUAL_PARTS, measured_rates
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.placement_times import (
    PlacementTime,
    RatesOf,
    fastest,
    forecast_step,
    in_flight,
    placement_times,
)
from rl_core.planning.settings import settle
from rl_core.planning.step_work import USUAL_SHARE, Lengths
from rl_core.run_directory import RunDirectory
from tasks.results.measured_steps import measured_lengths, measured_steps

SHARES: Final = (0.25, 0.5, 1.0)
"""Mean lengths of responses, as shares of the longest, for which a plan shows the seconds of a step beside those of the
expected length."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """The forecast of a step.

    Attributes:
        placements: Each placement that the devices allow; empty where nothing is known of the devices' speed.
        lengths: In words, the lengths of prompts and responses that it is for, and where they come from.
        by_length: [mean length of the responses, in tokens] -> the seconds of a step in the fastest placement, for each
            of `SHARES`.
        told: A sentence: where the rates of the devices come from, or what is not known.
    """

    placements: Sequence[PlacementTime] = ()
    lengths: str = ""
    by_length: Mapping[float, float] = field(default_factory=dict)
    told: str


def step_times(config: RunConfig, sizes: ModelSizes | None, run: RunDirectory, gpu: Gpu | None) -> StepTimes:
    """The forecast for a run.

    Args:
        config: Its config.
        sizes: Sizes of its model; None where they are not known.
        run: Its folder, which need not exist.
        gpu: The GPU of each worker; None for workers on the CPU.
    """
    measured = measured_lengths(run)
    lengths = measured or Lengths.assumed(config)
    rates_of, told = _rates(config, sizes, run, gpu, lengths)
    if rates_of is None:
        return StepTimes(told=told)
    placements = placement_times(config, sizes, gpu, lengths=lengths, rates_of=rates_of)
    best, longest = fastest(placements).config, config.rollout.max_response_length
    others = [lengths.with_responses(share * longest) for share in SHARES]
    return StepTimes(
        placements=placements,
        lengths=_length_words(config, lengths, is_measured=measured is not None),
        by_length={
            other.response: forecast_step(best, sizes, gpu, lengths=other, rates_of=rates_of).step for other in others
        },
        told=told,
    )


def _rates(
    config: RunConfig, sizes: ModelSizes | None, run: RunDirectory, gpu: Gpu | None, lengths: Lengths
) -> tuple[RatesOf | None, str]:
    """The rates of the devices and where they come from; None where they are not known."""
    card = None if gpu is None else card_named(gpu.name)
    assumed = partial(assumed_rates, sizes=sizes, card=card) if sizes and card else None
    settled = settle(config, sizes, gpu).config
    if steps := measured_steps(run, settled, in_flight=in_flight(settled, sizes, gpu, lengths), gpu=gpu):
        rates = measured_rates(steps, assumed(settled, lengths) if assumed else EQUAL_PARTS)
        told = f"measured in {len(steps)} steps of this run{'' if assumed else _PROPORTIONAL}"
        return lambda _config, _lengths: rates, told
    if assumed is None or card is None:
        return None, _unknown_words(sizes, gpu)
    return assumed, (
        f"assumed from the data sheet of {card.name}, at {MEMORY_EFFICIENCY:.0%} of its bandwidth and "
        f"{ARITHMETIC_EFFICIENCY:.0%} of its arithmetic, without rewards; after the first steps the run's own seconds "
        "are taken"
    )


_PROPORTIONAL = (
    "; where all were on the same number of workers, a worker with half the work is taken to need half the time"
)


def _length_words(config: RunConfig, lengths: Lengths, *, is_measured: bool) -> str:
    """How long prompts and responses are taken to be, and by whose word: `prompts of 450 and responses of 400 tokens
    (planning)`."""
    expected = (config.planning.mean_prompt_length, config.planning.mean_response_length)
    of_prompts, of_responses = (
        "the run's own steps" if is_measured else "planning" if length else f"{USUAL_SHARE:.0%} of the longest"
        for length in expected
    )
    first = "" if of_prompts == of_responses else f" ({of_prompts})"
    return f"prompts of {lengths.prompt:,.0f}{first} and responses of {lengths.response:,.0f} tokens ({of_responses})"


def _unknown_words(sizes: ModelSizes | None, gpu: Gpu | None) -> str:
    if gpu is None:
        return "not known: nothing is published of this CPU's speed; plan again after some steps on as many workers"
    if sizes is None:
        return "not known: the model is not here yet, or its parameters could not be counted"
    named = f"nothing is known of the speed of {gpu.name}" if gpu.name else "the kind of GPU is not known"
    return f"not known: {named}; name one like it ({', '.join(CARDS)}) with --gpu, or plan again after some steps"

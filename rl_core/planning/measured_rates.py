"""The rates of devices from measured steps: the seconds of each kind of work, divided among the parts of a forecast."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from rl_core.planning.device_rates import DeviceRates
from rl_core.planning.step_time import Arrangement, decode_steps, generate_seconds, pass_seconds, sendings, step_time
from rl_core.planning.step_work import StepWork
from rl_core.planning.worker_share import Share

EQUAL_PARTS: Final = DeviceRates(
    decode_fixed=1.0,
    decode_sequence=1.0,
    prefill_token=1.0,
    update_fixed=1.0,
    update_token=1.0,
    forward_token=1 / 3,
    sync_within=0.0,
    sync_between=0.0,
    other=0.0,
)
"""What is taken of a device of which nothing is known: an unknown time for a token, and as much for what is done
however many tokens there are; a forward pass is a third of forward and backward. So nearly all time is the tokens'."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredStep:
    """A step that was measured.

    Attributes:
        work: Its work.
        arrangement: Its workers.
        generate: Seconds that the generator with the longest time worked on the rollout batch.
        update: Seconds that the trainer with the longest time worked on it.
        exchange: The part of `update` in which replicas of the weights exchanged the policy's gradients.
        sync: Seconds of giving the generators the weights.
        compare: Seconds in which generator and trainer were compared; 0 unless generation overlaps with the update.
        total: Seconds of the whole step.
    """

    work: StepWork
    arrangement: Arrangement
    generate: float
    update: float
    exchange: float = 0.0
    sync: float
    compare: float = 0.0
    total: float

    @property
    def other(self) -> float:
        """Seconds that are not part of the others, in which no device worked."""
        is_overlapped = self.arrangement.is_overlapped
        work = max(self.generate, self.update) if is_overlapped else self.generate + self.update
        return max(0.0, self.total - self.sync - self.compare - work)

    @property
    def passes(self) -> float:
        """Seconds that the trainer computed. A critic's exchange is timed as part of its update; for each optimizer
        step it is taken to be that of the policy."""
        return max(0.0, self.update - self.exchange * self.work.optimizer_steps / self.work.updates[0].steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seconds:
    """The seconds of a kind of work in a step, and what the shape has for its two parts."""

    fixed: float
    growing: float
    measured: float


def measured_rates(steps: Sequence[MeasuredStep], shape: DeviceRates = EQUAL_PARTS) -> DeviceRates:
    """The rates with which the forecast gives the measured seconds.

    Generation and update have a part that is the same for any number of sequences or tokens, and one that grows with
    it. Where steps were measured with clearly different numbers of them a device (on other numbers of workers, or of
    other batches), both parts follow by least squares. Otherwise their proportion is that of `shape`.

    Args:
        steps: Measured steps, one or more.
        shape: Rates with the proportions to assume, such as those of the data sheet of the GPU. Its gradients' exchange
            is taken where no step tells it.
    """
    fixed, growing = _factors([_generation(step, shape) for step in steps])
    rates = shape.generating(fixed=fixed, growing=growing)
    fixed, growing = _factors([_update(step, shape) for step in steps])
    rates = rates.updating(fixed=fixed, growing=growing)
    exchanges = [step.exchange / _sendings(step) for step in steps if step.arrangement.replicas > 1]
    within = [step.sync for step in steps if not step.arrangement.is_split]
    between = [step.sync for step in steps if step.arrangement.is_split]
    return replace(
        rates,
        exchange=median(exchanges or [rates.exchange]),
        sync_within=median(within or between),
        sync_between=median(between or within),
        other=median(step.other for step in steps),
    )


def apart(steps: Sequence[MeasuredStep], rates: DeviceRates) -> DeviceRates:
    """The rates of a worker alone with the seconds by which a step of several took longer, in the median. They are
    never negative: what is faster together was disturbed when it was alone."""
    alone = replace(rates, apart_generate=0.0, apart_update=0.0)
    times = [(step, step_time(step.work, alone, step.arrangement)) for step in steps]
    return replace(
        rates,
        apart_generate=max(0.0, median(step.generate - time.generate for step, time in times)),
        apart_update=max(0.0, median(step.passes - (time.update - time.exchange) for step, time in times)),
    )


def slowness(steps: Sequence[MeasuredStep], rates: DeviceRates) -> float:
    """Times as long as at these rates that workers took in the median step in which some generated while others
    trained: their `beside`. Never less than 1."""
    free = replace(rates, beside=1.0)
    ratios = []
    for step in steps:
        time = step_time(step.work, free, step.arrangement)
        ratios.append((step.generate + step.passes) / (time.generate + time.update - time.exchange))
    return max(1.0, median(ratios))


def _sendings(step: MeasuredStep) -> float:
    """How often a worker has sent the policy's gradients in a step."""
    return step.work.updates[0].steps * sendings(step.arrangement.replicas)


def _generation(step: MeasuredStep, shape: DeviceRates) -> _Seconds:
    sequences = Share.of(step.work.prompts, step.arrangement.generators).most * step.work.n
    fixed = shape.decode_fixed * decode_steps(step.work, sequences, step.arrangement.in_flight)
    whole = generate_seconds(step.work, shape, step.arrangement)
    return _Seconds(fixed=fixed, growing=whole - fixed, measured=step.generate)


def _update(step: MeasuredStep, shape: DeviceRates) -> _Seconds:
    fixed = shape.update_fixed * step.work.optimizer_steps
    whole = pass_seconds(step.work, shape, step.arrangement)
    return _Seconds(fixed=fixed, growing=whole - fixed, measured=step.passes)


_DIFFERENT: Final = 1.5
"""By what factor the proportions of two steps must differ for both parts to be found: lengths differ by chance from
step to step, and from small differences least squares would find the noise."""


def _factors(steps: Sequence[_Seconds]) -> tuple[float, float]:
    """By what to multiply the fixed and the growing seconds of the shape, neither of them negative."""
    proportions = [step.fixed / step.growing for step in steps]
    together = sum(step.measured for step in steps) / sum(step.fixed + step.growing for step in steps)
    if max(proportions) < _DIFFERENT * min(proportions):
        return together, together
    fixed, growing = _least_squares(steps)
    if fixed < 0.0:
        return 0.0, _scale([step.growing for step in steps], steps)
    if growing < 0.0:
        return _scale([step.fixed for step in steps], steps), 0.0
    return fixed, growing


def _least_squares(steps: Sequence[_Seconds]) -> tuple[float, float]:
    """The normal equations of two unknowns, whose determinant is not 0 for different proportions."""
    ff = sum(step.fixed**2 for step in steps)
    fg = sum(step.fixed * step.growing for step in steps)
    gg = sum(step.growing**2 for step in steps)
    fm = sum(step.fixed * step.measured for step in steps)
    gm = sum(step.growing * step.measured for step in steps)
    determinant = ff * gg - fg * fg
    return (fm * gg - gm * fg) / determinant, (gm * ff - fm * fg) / determinant


def _scale(parts: Sequence[float], steps: Sequence[_Seconds]) -> float:
    """The factor of one part alone, by least squares."""
    return sum(part * step.measured for part, step in zip(parts, steps, strict=True)) / sum(part**2 for part in parts)

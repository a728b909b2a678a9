"""The forecast of step time beside measured arrangements of two workers, for `python -m benchmarks.placement`.

The rates come from runs that are none of the arrangements: one worker alone with the whole batch, and with the half of
it that one of two workers has, which tells what does not grow with the work; and two runs of one worker side by side,
which tell how much two busy cores slow each other down. Only the transfer of the weights to another process is in none
of these, so it is that of the other one of the two split arrangements. The lengths of the responses, which a forecast
is given, are those of the arrangement itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any, Final

from benchmarks.speed.comparison import PHASE_FIRST
from benchmarks.speed.side import CONFIG, SideResult
from rl_core.config.loading import load_config
from rl_core.planning.device_rates import DeviceRates
from rl_core.planning.measured_rates import MeasuredStep, measured_rates
from rl_core.planning.step_time import StepTime, step_time
from rl_core.planning.step_work import Lengths
from tasks.results.measured_steps import measured_step

HALF: Final = ("data.rollout_batch_size=32", "actor.global_batch_size=8")
"""Settings of half the quickstart's batch: what one of two colocated workers does."""

_PARTS: Final = ("generate", "update", "sync")


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """The runs that the rates come from.

    Attributes:
        whole: One worker alone.
        half: One worker alone, with the settings `HALF`.
        apart: Two runs of one worker, side by side.
    """

    whole: SideResult
    half: SideResult
    apart: Sequence[SideResult]

    def rates(self) -> DeviceRates:
        """The rates of a worker with one core."""
        whole, half = steps_of(self.whole), steps_of(self.half, HALF)
        crowded = [working(step) for side in self.apart for step in steps_of(side)]
        crowding = median(crowded) / median(working(step) for step in whole)
        own = replace(measured_rates([*whole, *half]), crowding=max(1.0, crowding))
        waiting = measured_rates(whole)  # half a batch has half the rewards
        return replace(own, sync_within=waiting.sync_within, other=waiting.other)


def steps_of(side: SideResult, settings: Sequence[str] = ()) -> list[MeasuredStep]:
    """The steps of a run from `PHASE_FIRST` on, when everything has started."""
    config = load_config(CONFIG, settings)
    found = [
        measured_step(timing, metrics, config, in_flight=config.rollout.max_num_seqs)
        for timing, metrics in zip(side.timings, side.metrics, strict=True)
        if timing["step"] >= PHASE_FIRST
    ]
    return [step for step in found if step is not None]


def working(step: MeasuredStep) -> float:
    """Seconds of a step in which its one worker computes."""
    return step.generate + step.update


def forecasts(
    measured: Mapping[str, SideResult], settings: Mapping[str, Sequence[str]], calibration: Calibration
) -> dict[str, Any]:
    """For each arrangement the forecast and the measured seconds of a step and of its parts, and the ratio of the two
    for the whole step."""
    steps = {name: steps_of(side, settings[name]) for name, side in measured.items()}
    rates = calibration.rates()
    found: dict[str, Any] = {"crowding": round(rates.crowding, 3)}
    for name, own in steps.items():
        syncs = [
            step.sync for other, those in steps.items() if other != name for step in those if step.arrangement.is_split
        ]
        time = _forecast(own, replace(rates, sync_between=median(syncs)))
        step = median(one.total for one in own)
        found[name] = {
            "forecast": {part: round(getattr(time, part), 3) for part in (*_PARTS, "step")},
            "measured": {
                **{part: round(median(getattr(one, part) for one in own), 3) for part in _PARTS},
                "step": round(step, 3),
            },
            "ratio": round(time.step / step, 3),
        }
    return found


def _forecast(steps: Sequence[MeasuredStep], rates: DeviceRates) -> StepTime:
    """The forecast of the arrangement of these steps, for responses as long as theirs."""
    lengths = [step.work.lengths for step in steps]
    usual = Lengths(
        prompt=mean(one.prompt for one in lengths),
        response=mean(one.response for one in lengths),
        longest=mean(one.longest for one in lengths),
    )
    return step_time(replace(steps[0].work, lengths=usual), rates, steps[0].arrangement)

"""The forecast of step time beside measured arrangements of two workers, for `python -m benchmarks.placement`.

The rates come from runs that are none of the arrangements (`CALIBRATION`): one worker alone with the whole batch, and
with half of it, which tells what does not grow with the work; and two workers with half the batch, in turn and one step
off-policy, which tell what the exchange of gradients and the transfer of weights take, and how much longer workers take
that share the cores with each other and with the run. The lengths of the responses, which a forecast is given, are
those of the arrangement itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

from benchmarks.speed.comparison import PHASE_FIRST
from benchmarks.speed.side import CONFIG, SideResult
from rl_core.config.loading import load_config
from rl_core.planning.device_rates import DeviceRates
from rl_core.planning.measured_rates import MeasuredStep, apart, measured_rates, slowness
from rl_core.planning.step_time import StepTime, step_time
from rl_core.planning.step_work import Lengths
from tasks.results.measured_steps import measured_step

HALF: Final = ("data.rollout_batch_size=32", "actor.global_batch_size=8")
"""Settings of half the quickstart's batch."""

PARTS: Final = ("generate", "update", "exchange", "sync", "compare", "other", "step")
"""What is compared, in seconds: `exchange` is part of `update`; `step` is the whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """A training that is measured.

    Attributes:
        workers: Number of its workers.
        settings: What is not as in the quickstart, beside the workers.
    """

    workers: int
    settings: Sequence[str] = ()


ONE_STEP_OFF: Final = ("cluster.placement=split", "rollout.staleness=1")

CALIBRATION: Final[Mapping[str, Trained]] = {
    "whole": Trained(workers=1),
    "half": Trained(workers=1, settings=HALF),
    "half, two workers": Trained(workers=2, settings=HALF),
    "half, one step off": Trained(workers=2, settings=(*HALF, *ONE_STEP_OFF)),
}
"""[name] -> a training that the rates come from."""


def calibrated(sides: Mapping[str, SideResult]) -> DeviceRates:
    """The rates of a worker with one core, from the runs `CALIBRATION`.

    What a step of two workers needs beside their work is more for the whole batch than for half of it, by as much as
    with one worker: rewards and records.
    """
    steps = {name: steps_of(sides[name], trained.settings) for name, trained in CALIBRATION.items()}
    together, ahead = steps["half, two workers"], steps["half, one step off"]
    alone = measured_rates([*steps["whole"], *steps["half"]])
    found = {name: measured_rates(own) for name, own in steps.items()}
    two = found["half, two workers"]
    several = replace(
        apart(together, alone),
        exchange=two.exchange,
        sync_within=two.sync_within,
        sync_between=found["half, one step off"].sync_between,
        other=two.other + max(0.0, found["whole"].other - found["half"].other),
    )
    return replace(several, beside=slowness(ahead, several))


def steps_of(side: SideResult, settings: Sequence[str] = ()) -> list[MeasuredStep]:
    """The steps of a run from `PHASE_FIRST` on, when everything has started."""
    config = load_config(CONFIG, settings)
    found = [
        measured_step(timing, metrics, config, in_flight=config.rollout.max_num_seqs)
        for timing, metrics in zip(side.timings, side.metrics, strict=True)
        if timing["step"] >= PHASE_FIRST
    ]
    return [step for step in found if step is not None]


def forecasts(measured: Mapping[str, Sequence[MeasuredStep]], rates: DeviceRates) -> dict[str, Any]:
    """For each arrangement the forecast and the measured seconds of a step and of its parts, and the ratio of the two
    for the whole step."""
    found: dict[str, Any] = {}
    for name, own in measured.items():
        time, seconds = _forecast(own, rates), {part: median(_part(step, part) for step in own) for part in PARTS}
        found[name] = {
            "forecast": {part: round(getattr(time, part), 3) for part in PARTS},
            "measured": {part: round(value, 3) for part, value in seconds.items()},
            "ratio": round(time.step / seconds["step"], 3),
        }
    return found


def forecast_table(compared: Mapping[str, Any]) -> str:
    """`forecasts` as a table: of each part the forecast and the measured seconds."""
    width = max(map(len, compared))
    lines = [" " * width + "".join(f"{part:>14}" for part in PARTS) + "   forecast / measured"]
    for name, own in compared.items():
        cells = (f"{own['forecast'][part]:.3f} {own['measured'][part]:.3f}" for part in PARTS)
        lines.append(f"{name:<{width}}" + "".join(f"{cell:>14}" for cell in cells) + f"   {own['ratio']:.2f}")
    return "\n".join(lines)


def _part(step: MeasuredStep, part: str) -> float:
    return step.total if part == "step" else getattr(step, part)


def _forecast(steps: Sequence[MeasuredStep], rates: DeviceRates) -> StepTime:
    """The forecast of the arrangement of these steps, for responses as long as theirs."""
    usual = Lengths.mean_of([step.work.lengths for step in steps])
    return step_time(replace(steps[0].work, lengths=usual), rates, steps[0].arrangement)

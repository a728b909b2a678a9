"""The figures of the comparison, from the runs of both sides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, stdev

from benchmarks.speed.side import SideResult

FIRST, LAST = 3, 22
"""Steps whose samples a second are compared; the first two hold start-up costs."""

REWARD_STEP = 20
PHASE_FIRST, PHASE_LAST = 5, 25

COMPUTE_PHASES = ("generate_s", "reward_wait_s", "forward_backward_s", "optimizer_s")
"""What a step is for; everything else is overhead, the sync of the weights included."""


@dataclass(frozen=True)
class Comparison:
    """Pairs of runs, (Sightline, TRL), one pair a seed, run one after the other; either side first in turn."""

    pairs: Sequence[tuple[SideResult, SideResult]]

    @property
    def ratios(self) -> list[float]:
        """Samples a second of Sightline over TRL's, pair by pair."""
        return [ours.samples_per_second(FIRST, LAST) / trl.samples_per_second(FIRST, LAST) for ours, trl in self.pairs]

    @property
    def ratio(self) -> float:
        """The median of the pairs' ratios."""
        return median(self.ratios)

    def rewards(self, side: int) -> list[float]:
        """Mean reward of step 20 of each seed; side 0 is Sightline, 1 TRL."""
        return [pair[side].rewards[REWARD_STEP - 1] for pair in self.pairs]

    @property
    def reward_margin(self) -> float:
        """Sightline's mean reward at step 20 less TRL's, over the seeds."""
        return mean(self.rewards(0)) - mean(self.rewards(1))

    @property
    def reward_standard_error(self) -> float:
        """Standard error of that difference of two means."""
        return float((sum(stdev(self.rewards(side)) ** 2 for side in (0, 1)) / len(self.pairs)) ** 0.5)

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Mean seconds a step of Sightline's phases, over steps 5 to 25 and all seeds; `step` is the whole of it by
        the outer clock, `outside_step` what the step's own timer does not see (loader, records)."""
        steps = [step for ours, _ in self.pairs for step in _steps(ours)]
        names = sorted({name for step in steps for name in step})
        return {name: mean(step.get(name, 0.0) for step in steps) for name in names}

    @property
    def overhead_share(self) -> float:
        """Share of a step outside generation, reward wait, forward/backward and optimizer, mean of steps 5 to 25."""
        shares = [
            1 - sum(step[name] for name in COMPUTE_PHASES) / step["step_s"]
            for ours, _ in self.pairs
            for step in _steps(ours)
        ]
        return mean(shares)

    def speed_line(self) -> str:
        ours, trl = ([pair[side].samples_per_second(FIRST, LAST) for pair in self.pairs] for side in (0, 1))
        return f"{mean(ours):.1f} and {mean(trl):.1f} samples/s, ratio {self.ratio:.2f}"


def _steps(ours: SideResult) -> list[Mapping[str, float]]:
    return [
        {**ours.phases[step - 1], "step_s": ours.seconds(step, step)} for step in range(PHASE_FIRST, PHASE_LAST + 1)
    ]

"""Do the rollout engine and the trainer compute the same log-probs?

See docs/architecture.md, "Generator and trainer agree".

Both hold the same weights, so the engine's log-prob of a sampled token and the trainer's first one may differ by
rounding only. Stale weights, a missed token ban, another temperature or other images all show here, and nowhere else
until the run fails to learn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rl_core.config.tolerances import Tolerance
from rl_core.types import Float32Array, TrainSample


class AgreementError(RuntimeError):
    """Engine and trainer disagree beyond the bound, or cannot be compared where they must; training on would optimise
    another distribution."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogProbGaps:
    """Absolute differences of the log-probs of generator and trainer, nats, over the tokens that were compared."""

    largest: float
    total: float
    count: int

    @property
    def mean(self) -> float:
        """Mean over the tokens; 0 where nothing was compared."""
        return self.total / max(self.count, 1)


class AgreementMeter:
    """Collects the largest and the mean difference over an optimizer batch.

    Args:
        policy_version: Of the trainer's weights. What other weights have drawn (a group kept by the filter from the
            step before) cannot agree with them and is left out.
        keeps_surplus: Whether the filter keeps such groups; otherwise nothing may be left out of a whole batch.
    """

    def __init__(self, policy_version: int, *, keeps_surplus: bool) -> None:
        self._policy_version = policy_version
        self._keeps_surplus = keeps_surplus
        self._unexplained: set[int] = set()
        self._sum = 0.0
        self._count = 0
        self._worst = (0.0, "")

    def add(self, samples: Sequence[TrainSample], trainer_log_probs: Float32Array) -> None:
        """Compare samples with the trainer's log-probs of their tokens, [sum R] in the samples' order."""
        engine = np.concatenate([sample.rollout.log_probs for sample in samples])
        gaps = np.abs(engine - trainer_log_probs)
        # A NaN on either side is the largest disagreement there is, and max() would lose it.
        gaps = np.where(np.isnan(gaps), np.inf, gaps)
        own = np.concatenate([np.full(len(s.rollout.log_probs), self._is_own(s)) for s in samples])
        gaps = np.where(own, gaps, 0.0)
        self._unexplained |= {s.rollout.policy_version for s in samples if not self._is_own(s) and not self._is_kept(s)}
        self._sum += float(gaps.sum())
        self._count += int(own.sum())
        position = int(gaps.argmax())
        if gaps[position] > self._worst[0]:
            self._worst = (float(gaps[position]), _locate(samples, position))

    def gaps(self) -> LogProbGaps:
        """What was found so far."""
        return LogProbGaps(largest=self._worst[0], total=self._sum, count=self._count)

    def check(self, bound: Tolerance) -> None:
        """Raises AgreementError when the largest or the mean difference is above its bound: rounding in bfloat16 puts
        single rare tokens far off and the mean nowhere. Raises it too when there was nothing to compare, unless every
        sample is of a group that the filter has kept."""
        if self._count == 0 and self._unexplained:
            raise AgreementError(
                f"no token of the optimizer batch could be compared between engine and trainer: the trainer has "
                f"weights of version {self._policy_version}, and the samples were drawn with version(s) "
                f"{sorted(self._unexplained)}, which no algorithm.online_filtering.surplus explains. Weights were "
                f"counted or handed over wrongly: sync the engine before it draws, and count each update once"
            )
        gaps = self.gaps()
        bounds = {
            "max_log_prob_gap": (gaps.largest, bound.largest),
            "max_mean_log_prob_gap": (gaps.mean, bound.mean),
        }
        broken = [f"rollout.{name} = {most:.3g}" for name, (gap, most) in bounds.items() if gap > most]
        if broken:
            raise AgreementError(
                f"engine and trainer log-probs differ by up to {gaps.largest:.3g} (mean {gaps.mean:.3g}) at "
                f"{self._worst[1]}, above {' and '.join(broken)}. Equal weights agree to rounding: "
                f"look for a missed weight sync, another temperature or token ban, or images processed differently; "
                f"raise the bound only when the number format explains the gap"
            )

    def _is_own(self, sample: TrainSample) -> bool:
        return sample.rollout.policy_version == self._policy_version

    def _is_kept(self, sample: TrainSample) -> bool:
        return self._keeps_surplus and sample.rollout.policy_version < self._policy_version


def _locate(samples: Sequence[TrainSample], position: int) -> str:
    for sample in samples:
        length = len(sample.rollout.response_ids)
        if position < length:
            rollout = sample.rollout
            return f"prompt {rollout.prompt_uid}, sample {rollout.sample_index}, token {position}"
        position -= length
    raise IndexError(position)

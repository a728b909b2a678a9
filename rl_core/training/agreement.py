"""Checks that generator and trainer compute the same log-probs (docs/architecture.md, "Generator and trainer agree").

Both hold the same weights, so their log-probs of a sampled token may differ by rounding only. Stale weights, a missing
token ban, another temperature or other images show here, and otherwise only in a run that does not learn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rl_core.config.tolerances import Tolerance
from rl_core.types import Float32Array, TrainSample


class AgreementError(RuntimeError):
    """The log-probs of generator and trainer differ by more than the bound, or cannot be compared although they must
    be. Training on would optimise another distribution than the sampled one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogProbGap:
    """Absolute differences between the log-probs of generator and trainer, nats, over the compared tokens."""

    largest: float
    total: float
    count: int

    @property
    def mean(self) -> float:
        """Mean over the compared tokens; 0 if there were none."""
        return self.total / max(self.count, 1)


class AgreementMeter:
    """Collects the largest and the mean difference over an optimizer batch.

    Args:
        policy_version: Version of the trainer's weights. Rollouts that other weights have sampled (groups that the
            filter kept from the previous step) cannot agree with them and are left out.
        keeps_surplus: Whether the filter keeps such groups. If not, a batch in which everything is left out is an
            error.
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
        generator_log_probs = np.concatenate([sample.rollout.log_probs for sample in samples])
        gaps = np.abs(generator_log_probs - trainer_log_probs)
        # A NaN on either side counts as an infinite difference, because max() would lose it.
        gaps = np.where(np.isnan(gaps), np.inf, gaps)
        own = np.concatenate([np.full(len(s.rollout.log_probs), self._is_own(s)) for s in samples])
        gaps = np.where(own, gaps, 0.0)
        self._unexplained |= {s.rollout.policy_version for s in samples if not self._is_own(s) and not self._is_kept(s)}
        self._sum += float(gaps.sum())
        self._count += int(own.sum())
        position = int(gaps.argmax())
        if gaps[position] > self._worst[0]:
            self._worst = (float(gaps[position]), _locate(samples, position))

    def gap(self) -> LogProbGap:
        """The differences found so far."""
        return LogProbGap(largest=self._worst[0], total=self._sum, count=self._count)

    def check(self, bound: Tolerance) -> None:
        """Compare the differences with their bounds. There are two, because rounding in bfloat16 moves single rare
        tokens far, but hardly the mean.

        Raises:
            AgreementError: the largest or the mean difference exceeds its bound; or no token could be compared,
                although not every sample belongs to a group that the filter has kept.
        """
        if self._count == 0 and self._unexplained:
            raise AgreementError(
                f"no token of the optimizer batch could be compared between generator and trainer: the trainer has "
                f"weights of version {self._policy_version}, and the samples come from version(s) "
                f"{sorted(self._unexplained)}, which algorithm.online_filtering.surplus does not explain. Weights were "
                f"counted or synced wrongly: sync the generator before it samples, and count each update once"
            )
        gap = self.gap()
        bounds = {
            "max_log_prob_gap": (gap.largest, bound.largest),
            "max_mean_log_prob_gap": (gap.mean, bound.mean),
        }
        broken = [f"rollout.{name} = {most:.3g}" for name, (found, most) in bounds.items() if found > most]
        if broken:
            raise AgreementError(
                f"the log-probs of generator and trainer differ by up to {gap.largest:.3g} (mean {gap.mean:.3g}) at "
                f"{self._worst[1]}, above {' and '.join(broken)}. Equal weights agree up to rounding: "
                f"look for a missed weight sync, a different temperature or token ban, or images that are processed "
                f"differently; raise the bound only if the number format explains the difference"
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

"""Checks that generator and trainer compute the same log-probs (docs/architecture.md, "Generator and trainer agree").

Both hold the same weights, so their log-probs of a sampled token may differ by rounding only. Stale weights, a missing
token ban, another temperature or other images show here, and otherwise only in a run that does not learn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rl_core.config.tolerances import AgreementBounds
from rl_core.distributed.ranks import Ranks
from rl_core.types import Float32Array, Float64Array, Rollout


class AgreementError(RuntimeError):
    """The log-probs of generator and trainer differ by more than the bound, or cannot be compared although they must
    be. Training on would optimise another distribution than the sampled one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogProbGap:
    """Differences between the log-probs of generator and trainer over the tokens that were compared."""

    count: int  # Tokens
    largest: float  # Largest absolute difference, nats
    percentile: float  # 99.9th percentile of the absolute differences, nats: the largest one of fewer than 1000 tokens
    mean: float  # Their mean, nats
    spread: float  # Standard deviation of the trainer's log-probs, nats
    correlation: float | None  # Pearson's, of both; None where one side does not vary


NOTHING_COMPARED = LogProbGap(count=0, largest=0.0, percentile=0.0, mean=0.0, spread=0.0, correlation=None)


def log_prob_gap(generator: Float32Array, trainer: Float32Array) -> LogProbGap:
    """Compare the log-probs [K] of the same tokens, K >= 1. A NaN on either side is an infinite difference."""
    gaps = _absolute_gaps(generator, trainer)
    return LogProbGap(
        count=len(gaps),
        largest=float(gaps.max()),
        percentile=float(np.quantile(gaps, 0.999, method="inverted_cdf")),
        mean=float(gaps.mean()),
        spread=float(trainer.std(dtype=np.float64)),
        correlation=_correlation(generator.astype(np.float64), trainer.astype(np.float64)),
    )


def _absolute_gaps(generator: Float32Array, trainer: Float32Array) -> Float64Array:
    """[K] float64 absolute differences; infinite where either side is NaN, which a maximum would lose."""
    gaps = np.abs(generator.astype(np.float64) - trainer)
    return np.where(np.isnan(gaps), np.inf, gaps)


def _correlation(one: Float64Array, other: Float64Array) -> float | None:
    one, other = one - one.mean(), other - other.mean()
    scale = np.sqrt(np.square(one).sum() * np.square(other).sum())
    return float((one * other).sum() / scale) if scale > 0.0 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Compared:
    """What one rank has compared, [K] float32 log-probs of the same tokens."""

    generator: Float32Array
    trainer: Float32Array
    largest: float  # Largest absolute difference, nats
    worst: str  # Names the first token that differs so much
    unexplained: frozenset[int]  # Versions of rollouts that could not be compared


class AgreementMeter:
    """Collects the log-probs of generator and trainer over an optimizer batch. Rollouts of other weights than the
    trainer's (`policy_version`) cannot agree with them and are left out. Unless the filter keeps groups from the
    previous step (`keeps_surplus`), a batch in which everything is left out is an error."""

    def __init__(self, policy_version: int, *, keeps_surplus: bool) -> None:
        self._policy_version = policy_version
        self._keeps_surplus = keeps_surplus
        self._unexplained: set[int] = set()
        self._own: list[tuple[Rollout, Float32Array]] = []
        self._others: list[_Compared] | None = None

    def add(self, rollouts: Sequence[Rollout], trainer_log_probs: Float32Array) -> None:
        """`trainer_log_probs`: [sum R] of the rollouts' tokens, in their order."""
        ends = np.cumsum([len(rollout.log_probs) for rollout in rollouts])
        for rollout, trainer in zip(rollouts, np.split(trainer_log_probs, ends[:-1]), strict=True):
            if rollout.policy_version == self._policy_version:
                self._own.append((rollout, trainer))
            elif not self._keeps_surplus or rollout.policy_version > self._policy_version:
                self._unexplained.add(rollout.policy_version)

    def share(self, ranks: Ranks) -> None:
        """Add what the other ranks have compared, so that `gap` and `check` come to the same on every rank."""
        self._others = ranks.gather_from_learners(self._found())

    def gap(self) -> LogProbGap:
        """The differences found so far."""
        return self._gap_of(self._all())

    @staticmethod
    def _gap_of(found: Sequence[_Compared]) -> LogProbGap:
        if not any(len(part.generator) for part in found):
            return NOTHING_COMPARED
        return log_prob_gap(
            np.concatenate([part.generator for part in found]), np.concatenate([part.trainer for part in found])
        )

    def check(self, bounds: AgreementBounds) -> None:
        """Raises AgreementError if a bound is broken, or if no token could be compared, although not every rollout
        belongs to a group that the filter has kept."""
        found = self._all()
        gap = self._gap_of(found)
        unexplained = sorted(frozenset().union(*(part.unexplained for part in found)))
        if gap.count == 0 and unexplained:
            raise AgreementError(
                f"no token of the optimizer batch could be compared between generator and trainer: the trainer has "
                f"weights of version {self._policy_version}, and the rollouts come from version(s) "
                f"{unexplained}, which algorithm.online_filtering.surplus does not explain. Weights were "
                f"counted or synced wrongly: sync the generator before it samples, and count each update once"
            )
        worst = max(found, key=lambda part: part.largest).worst
        if broken := list(broken_bounds(gap, bounds)):
            raise AgreementError(
                f"the log-probs of generator and trainer differ by up to {gap.largest:.3g} (99.9th percentile "
                f"{gap.percentile:.3g}, mean {gap.mean:.3g}), most at {worst}, "
                f"beyond {' and '.join(broken)}. Equal weights agree up to rounding: look for a missed weight sync, a "
                f"different temperature or token ban, or images that are processed differently; change the bound only "
                f"if the number format explains the difference"
            )

    def _all(self) -> list[_Compared]:
        return [self._found()] if self._others is None else self._others

    def _found(self) -> _Compared:
        nothing = np.empty(0, np.float32)
        generator = np.concatenate([nothing, *(rollout.log_probs for rollout, _ in self._own)])
        trainer = np.concatenate([nothing, *(log_probs for _, log_probs in self._own)])
        largest, worst = self._worst_token(_absolute_gaps(generator, trainer))
        return _Compared(
            generator=generator,
            trainer=trainer,
            largest=largest,
            worst=worst,
            unexplained=frozenset(self._unexplained),
        )

    def _worst_token(self, gaps: Float64Array) -> tuple[float, str]:
        if not len(gaps):
            return -1.0, "no token"
        place = int(gaps.argmax())
        ends = np.cumsum([len(log_probs) for _, log_probs in self._own])
        number = int(np.searchsorted(ends, place, side="right"))
        rollout, log_probs = self._own[number]
        token = place - (int(ends[number]) - len(log_probs))
        return float(gaps[place]), f"prompt {rollout.prompt_uid}, sample {rollout.sample_index}, token {token}"


def broken_bounds(gap: LogProbGap, bounds: AgreementBounds) -> Iterator[str]:
    """With key and value."""
    if gap.percentile > bounds.percentile:
        yield f"rollout.max_log_prob_gap = {bounds.percentile:.3g}"
    if gap.mean > bounds.mean:
        yield f"rollout.max_mean_log_prob_gap = {bounds.mean:.3g}"
    if gap.correlation is not None and gap.spread > bounds.least_spread and gap.correlation < bounds.correlation:
        yield f"rollout.min_log_prob_correlation = {bounds.correlation:.3g} (it is {gap.correlation:.3g})"

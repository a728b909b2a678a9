"""How far apart log-probs of equal weights may be before the run stops: as configured, or by the number format."""

from dataclasses import dataclass
from typing import Final

from rl_core.config.run import RunConfig

COMPARED_GROUPS: Final = 8
"""Groups that the trainer computes once more where the batch of a step is too old to compare generator and trainer on:
their tokens tell as much as those of a whole batch, and the pass costs little compared with the update."""

COMPARED_TOKENS: Final = 32
"""Most tokens of a response that is sampled only for this comparison."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """Bounds on absolute differences of log-probs, in nats: of any one token, and of the mean of all."""

    largest: float
    mean: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AgreementBounds:
    """What the log-probs of generator and trainer keep over an optimizer batch: bounds on the 99.9th percentile and the
    mean of their absolute differences, in nats, and the least Pearson correlation. There is no bound on the largest
    difference: among the 1e5 tokens of a step a single one may be far off."""

    percentile: float
    mean: float
    correlation: float

    @property
    def least_spread(self) -> float:
        """Standard deviation of the log-probs, nats, from which `correlation` holds: with a smaller one, differences
        that `mean` allows could break it."""
        return 3.0 * self.mean


AGREEMENT: Final = {
    # float32 rounds at 6e-8. Tiny models differ by up to 2e-5, deeper models with longer sums by several times that. A
    # temperature of 0.99 in place of 1 already makes a difference of a hundredth.
    "float32": AgreementBounds(percentile=1e-3, mean=1e-4, correlation=0.9),
    # bfloat16 rounds at 4e-3: among a million tokens a few rare ones differ by more than 1, and the mean by 0.03.
    "bfloat16": AgreementBounds(percentile=5.0, mean=0.1, correlation=0.9),
}
"""model.dtype -> bounds that generator and trainer, two implementations of one model, keep."""

PROBE: Final = {"float32": 1e-4, "bfloat16": 1.0}
"""model.dtype -> bound that two implementations of one model keep on the few tokens of a probe."""

# Rounding makes large differences in rare tokens only, a wrong weight in most tokens.
_PROBE_MEAN_SHARE = 0.1
# The code that saved a probe gives the same numbers again on the same kind of device; the kernels of another one round
# differently.
_RESUME_SHARE = 0.1


def agreement_bounds(config: RunConfig) -> AgreementBounds:
    """How far apart generator and trainer may be (docs/architecture.md, "Generator and trainer agree")."""
    rollout, usual = config.rollout, AGREEMENT[config.model.dtype]
    correlation = rollout.min_log_prob_correlation
    return AgreementBounds(
        percentile=usual.percentile if rollout.max_log_prob_gap is None else rollout.max_log_prob_gap,
        mean=usual.mean if rollout.max_mean_log_prob_gap is None else rollout.max_mean_log_prob_gap,
        correlation=usual.correlation if correlation is None else correlation,
    )


def merge_tolerance(config: RunConfig) -> Tolerance:
    """How far another implementation of the merged model may be from the checkpoint's probe."""
    asked = config.merge.probe_tolerance
    largest = PROBE[config.model.dtype] if asked is None else asked
    return Tolerance(largest=largest, mean=_PROBE_MEAN_SHARE * largest)


def resume_tolerance(config: RunConfig, *, same_place: bool) -> Tolerance:
    """How far a trainer that has loaded a checkpoint may be from its probe, which was computed on this kind of device
    and by as many workers if it is the `same_place`."""
    merged = merge_tolerance(config)
    if not same_place:
        return merged
    return Tolerance(largest=_RESUME_SHARE * merged.largest, mean=_RESUME_SHARE * merged.mean)

"""How far log-probs of equal weights may be apart before the run stops: as configured, or by the number format."""

from dataclasses import dataclass
from typing import Final

from rl_core.config.run import RunConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """Bounds on absolute differences of log-probs, nats: of one token, and of the mean over all."""

    largest: float
    mean: float


AGREEMENT: Final = {
    # float32 rounds at 6e-8; tiny models reach 2e-5, and deeper ones with longer sums some times that. A temperature of
    # 0.99 for 1 is off by a hundredth already.
    "float32": Tolerance(largest=1e-3, mean=1e-4),
    # bfloat16 rounds at 4e-3: among a million tokens a rare one is off by more than 1, the mean by 0.03.
    "bfloat16": Tolerance(largest=5.0, mean=0.1),
}
"""model.dtype -> what engine and trainer, two implementations of one model, keep."""

PROBE: Final = {"float32": 1e-4, "bfloat16": 1.0}
"""model.dtype -> largest difference that two implementations of one model keep in the few tokens of a probe."""

# Rounding is far off in rare tokens only, a wrong weight in most of them.
_PROBE_MEAN_SHARE = 0.1
# The code that saved a probe gives the same numbers again; another machine's kernels may round otherwise.
_RESUME_SHARE = 0.1


def agreement_tolerance(config: RunConfig) -> Tolerance:
    """How far engine and trainer may be apart (docs/architecture.md, "Generator and trainer agree")."""
    rollout, usual = config.rollout, AGREEMENT[config.model.dtype]
    return Tolerance(
        largest=usual.largest if rollout.max_log_prob_gap is None else rollout.max_log_prob_gap,
        mean=usual.mean if rollout.max_mean_log_prob_gap is None else rollout.max_mean_log_prob_gap,
    )


def merge_tolerance(config: RunConfig) -> Tolerance:
    """How far another implementation of the merged model may be from the checkpoint's probe."""
    asked = config.merge.probe_tolerance
    largest = PROBE[config.model.dtype] if asked is None else asked
    return Tolerance(largest=largest, mean=_PROBE_MEAN_SHARE * largest)


def resume_tolerance(config: RunConfig) -> Tolerance:
    """How far a trainer that has loaded a checkpoint may be from its probe."""
    merged = merge_tolerance(config)
    return Tolerance(largest=_RESUME_SHARE * merged.largest, mean=_RESUME_SHARE * merged.mean)

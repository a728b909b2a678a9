"""Off-policy correction: the generator samples from a slightly different distribution than the trainer computes.

The weight of a token or a sequence is pi_trainer / pi_generator, where both have the same weights. It multiplies the
policy loss, and it is bounded, because a few extreme ratios would otherwise dominate the gradient.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

Level = Literal["token", "sequence"]
LogRatio = npt.NDArray[np.float64]
Weights = npt.NDArray[np.float64]

MAX_LOG_RATIO = 20.0


def importance_ratios(log_ratio: LogRatio, level: Level) -> Weights:
    """[R] float64 pi_trainer / pi_generator of each token of a response, from the trainer's minus the generator's
    log-probs [R]. At sequence level, every token has the ratio of the whole response, the product of its tokens'
    ratios, which is unbiased, and whose variance grows with the length."""
    if level == "sequence":
        log_ratio = np.full_like(log_ratio, log_ratio.sum())
    return np.exp(np.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def truncated_weights(ratios: Weights, *, clip_max: float) -> Weights:
    """TIS: ratios above `clip_max` become `clip_max` (IMPALA, arXiv 1802.01561; for engines Yao et al. 2025)."""
    return np.minimum(ratios, clip_max)


def masked_weights(ratios: Weights, *, clip_min: float, clip_max: float) -> Weights:
    """MIS: ratios outside [clip_min, clip_max] become 0; of tokens with 0.5 and 5: IcePop (Ling Team 2025)."""
    return np.where((ratios >= clip_min) & (ratios <= clip_max), ratios, 0.0)


def effective_sample_size(weights: Weights) -> float:
    """(sum w)^2 / (N sum w^2) of weights [N] >= 0: the share of the samples with which an unweighted mean would be as
    precise; 0 if all weights are 0."""
    squares = float(np.square(weights).sum())
    return float(weights.sum()) ** 2 / (weights.size * squares) if squares else 0.0


def off_policy_metrics(log_ratios: Sequence[LogRatio], weights: Sequence[Weights] | None) -> dict[str, float]:
    """How much generator and trainer differ over a rollout batch: `off_policy/kl` (k3 of KL(generator || trainer), nats
    per token) and `off_policy/ratio_{mean,min,max}` over tokens, from the trainer's minus the generator's log-probs of
    each response; with weights also `off_policy/ess` in [0, 1] and `off_policy/weight_mean`."""
    log_ratio = np.concatenate(log_ratios)
    ratio = importance_ratios(log_ratio, "token")
    metrics = {
        "off_policy/kl": float(np.mean(ratio - 1.0 - log_ratio)),
        "off_policy/ratio_mean": float(ratio.mean()),
        "off_policy/ratio_min": float(ratio.min()),
        "off_policy/ratio_max": float(ratio.max()),
    }
    if weights is None:
        return metrics
    used = np.concatenate(weights)
    return metrics | {
        "off_policy/ess": effective_sample_size(used),
        "off_policy/weight_mean": float(used.mean()),
    }

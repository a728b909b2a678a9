"""How far the engine's distribution is from the trainer's, and the weights that make up for it."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from rl_core.algorithms.advantages import Grouped
from rl_core.algorithms.correction import (
    LogRatio,
    Weights,
    importance_ratios,
    masked_weights,
    off_policy_metrics,
    truncated_weights,
)
from rl_core.config.algorithm import Correction, MaskedCorrection
from rl_core.loop.advantages import TokenArrays
from rl_core.types import Group


def engine_mismatch(groups: Sequence[Group], trainer: TokenArrays) -> Grouped:
    """[group][rollout] -> [R] float64: the trainer's less the engine's log-probs."""
    return [
        [
            log_probs.astype(np.float64) - rollout.log_probs
            for rollout, log_probs in zip(group.rollouts, trainer[i], strict=True)
        ]
        for i, group in enumerate(groups)
    ]


def correct(mismatch: Grouped, config: Correction | None) -> tuple[Grouped | None, dict[str, float]]:
    """The importance weights, [group][rollout] -> [R], or None without correction; and the metrics."""
    weights = None if config is None else [[_weights(part, config) for part in group] for group in mismatch]
    used = None if weights is None else list(chain.from_iterable(weights))
    return weights, off_policy_metrics(list(chain.from_iterable(mismatch)), used)


def _weights(log_ratio: LogRatio, config: Correction) -> Weights:
    ratios = importance_ratios(log_ratio, config.level)
    if isinstance(config, MaskedCorrection):
        return masked_weights(ratios, clip_min=config.clip_min, clip_max=config.clip_max)
    return truncated_weights(ratios, clip_max=config.clip_max)

"""The KL of a rollout batch to the reference: what it takes off the reward, and what steers its weight."""

from dataclasses import dataclass

import numpy as np
import torch

from rl_core.algorithms.advantage_estimators import Grouped
from rl_core.algorithms.kl_controller import AdaptiveKLController, FixedKLController, KLController
from rl_core.algorithms.registry import KL_ESTIMATORS
from rl_core.config.algorithm import KLConfig
from rl_core.engine.advantages import TokenArrays


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceKL:
    """What the reference says about a rollout batch.

    Attributes:
        ref_log_probs: [group][rollout] -> [R] float32.
        per_token: [group][rollout] -> [R] float64, the estimate of KL(old || reference) at each token.
        in_reward: Whether it is taken off the reward, and not part of the loss.
    """

    ref_log_probs: TokenArrays
    per_token: Grouped
    in_reward: bool

    @property
    def mean(self) -> float:
        """Mean over responses of their token means, nats a token: what an adaptive weight follows."""
        return float(np.mean([values.mean() for group in self.per_token for values in group]))

    def penalties(self, coef: float) -> Grouped | None:
        """[group][rollout] -> [R] what is taken off each token's reward; None when nothing is."""
        return [[coef * values for values in group] for group in self.per_token] if self.in_reward else None


def reference_kl(old: TokenArrays, ref: TokenArrays, config: KLConfig) -> ReferenceKL:
    """Compare [group][rollout] -> [R] log-probs under the sampling policy and under the reference."""
    estimate = KL_ESTIMATORS[config.penalty]
    per_token = [
        [
            estimate(torch.from_numpy(mine), torch.from_numpy(theirs)).double().numpy()
            for mine, theirs in zip(*pair, strict=True)
        ]
        for pair in zip(old, ref, strict=True)
    ]
    return ReferenceKL(ref_log_probs=ref, per_token=per_token, in_reward=not config.use_kl_loss)


def kl_controller(config: KLConfig, *, coef: float) -> KLController:
    """The controller that the section asks for, at the weight `coef`: the section's own, or a checkpoint's."""
    if config.adaptive is None:
        return FixedKLController(coef=coef)
    return AdaptiveKLController(coef=coef, target=config.adaptive.target, horizon=config.adaptive.horizon)

"""The KL of a rollout batch to the reference: what it takes off the reward, and what steers its weight."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rl_core.algorithms.advantages import Grouped
from rl_core.algorithms.kl import KLEstimator
from rl_core.algorithms.kl_controller import AdaptiveKLController, FixedKLController, KLController
from rl_core.algorithms.registry import KL_ESTIMATORS
from rl_core.config.algorithm import KLConfig
from rl_core.loop.advantages import TokenArrays
from rl_core.types import Group
from rl_core.workers.protocol import WorkerGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceKL:
    """What the reference says about a rollout batch.

    Attributes:
        ref_log_probs: [group][rollout] -> [R] float32; None where the loss takes whole distributions.
        per_token: [group][rollout] -> [R] float64, KL(old || reference) at each token, or the estimate of it.
        in_reward: Whether it is taken off the reward, and not part of the loss.
    """

    ref_log_probs: TokenArrays | None
    per_token: Grouped
    in_reward: bool

    @property
    def mean(self) -> float:
        """Mean over responses of their token means, nats a token: what an adaptive weight follows."""
        return float(np.mean([values.mean() for group in self.per_token for values in group]))

    def penalties(self, coef: float) -> Grouped | None:
        """[group][rollout] -> [R] what is taken off each token's reward; None when nothing is."""
        return [[coef * values for values in group] for group in self.per_token] if self.in_reward else None


def reference_kl(groups: Sequence[Group], old: TokenArrays, *, config: KLConfig, workers: WorkerGroup) -> ReferenceKL:
    """Let the workers compare sampling policy, whose log-probs are `old`, and reference."""
    in_reward = not config.use_kl_loss
    if config.penalty == "full":
        full = [[values.astype(np.float64) for values in group] for group in workers.full_kl(groups)]
        return ReferenceKL(ref_log_probs=None, per_token=full, in_reward=in_reward)
    ref = workers.log_probs(groups, reference=True)
    estimates = _estimated(old, ref, KL_ESTIMATORS[config.penalty])
    return ReferenceKL(ref_log_probs=ref, per_token=estimates, in_reward=in_reward)


def _estimated(old: TokenArrays, ref: TokenArrays, estimate: KLEstimator) -> Grouped:
    return [
        [
            estimate(torch.from_numpy(mine), torch.from_numpy(theirs)).double().numpy()
            for mine, theirs in zip(*pair, strict=True)
        ]
        for pair in zip(old, ref, strict=True)
    ]


def kl_controller(config: KLConfig, *, coef: float) -> KLController:
    """The controller that the section asks for, at the weight `coef`: the section's own, or a checkpoint's."""
    if config.adaptive is None:
        return FixedKLController(coef=coef)
    return AdaptiveKLController(coef=coef, target=config.adaptive.target, horizon=config.adaptive.horizon)

"""The KL of a rollout batch to the reference: the penalty on the reward, and the controller of its weight."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rl_core.algorithms.advantages import Grouped
from rl_core.algorithms.kl import KL_ESTIMATORS, KLEstimator
from rl_core.algorithms.kl_controller import AdaptiveKLController, FixedKLController, KLController
from rl_core.config.algorithm import KLConfig
from rl_core.loop.advantages import TokenArrays
from rl_core.types import Group
from rl_core.workers.protocol import WorkerGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceKL:
    """A rollout batch under the reference.

    Attributes:
        ref_log_probs: [group][rollout] -> [R] float32; None if the KL is computed over the whole vocabulary.
        per_token: [group][rollout] -> [R] float64, KL(old || reference) at each token, or an estimate of it.
        in_reward: Whether the KL is subtracted from the reward; if not, it is a term of the loss.
    """

    ref_log_probs: TokenArrays | None
    per_token: Grouped
    in_reward: bool

    @property
    def mean(self) -> float:
        """Mean over the responses of their token means, nats per token, which an adaptive controller follows."""
        return float(np.mean([values.mean() for group in self.per_token for values in group]))

    def penalties(self, coef: float) -> Grouped | None:
        """[group][rollout] -> [R] what is subtracted from each token's reward; None if the KL is a term of the loss."""
        return [[coef * values for values in group] for group in self.per_token] if self.in_reward else None


def reference_kl(groups: Sequence[Group], old: TokenArrays, *, config: KLConfig, workers: WorkerGroup) -> ReferenceKL:
    """Have the workers compute the KL between the sampling policy, whose log-probs are `old`, and the reference."""
    in_reward = not config.use_kl_loss
    if config.penalty == "full":
        (found,) = workers.compute("full_kl", [groups])
        full = [[values.astype(np.float64) for values in group] for group in found]
        return ReferenceKL(ref_log_probs=None, per_token=full, in_reward=in_reward)
    (ref,) = workers.compute("reference_log_probs", [groups])
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
    """The controller that the section describes, with the current weight `coef`."""
    if config.adaptive is None:
        return FixedKLController(coef=coef)
    return AdaptiveKLController(coef=coef, target=config.adaptive.target, horizon=config.adaptive.horizon)

"""SAPO: a smooth gate in place of the clip (arXiv 2511.20347)."""

import torch

from rl_core.algorithms.policy_loss import MAX_LOG_RATIO, LossOptions, PolicyLoss, ResponseTokens


def sapo_policy_loss(tokens: ResponseTokens, options: LossOptions) -> PolicyLoss:
    """L = -A (4 / tau) sigmoid(tau (r - 1)); the gradient is largest at r = 1 and fades with the distance.

    Reads the two temperatures: a larger one where the advantage is negative lets go of such tokens sooner.
    """
    ratio = tokens.log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    tau = torch.where(tokens.advantages < 0, options.tau_negative, options.tau_positive)
    gate = 4.0 / tau * torch.sigmoid(tau * (ratio - 1.0))
    return PolicyLoss(per_token=-tokens.advantages * gate, logged={"sapo_gate": gate})

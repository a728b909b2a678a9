"""CISPO: the clipped ratio as a weight, so that no token loses its gradient (MiniMax-M1, arXiv 2506.13585)."""

from rl_core.algorithms.policy_loss import LossOptions, PolicyLoss, ResponseTokens


def cispo_policy_loss(tokens: ResponseTokens, options: LossOptions) -> PolicyLoss:
    """L = -A sg[clip(r, 1 - low, 1 + high)] log pi.

    Reads the lower and the upper clip ratio. The paper bounds from above only (low = 1); EasyR1's recipe has low 0,
    high 4.
    """
    log_ratio = tokens.log_ratio.detach()
    low, high = options.log_bounds
    weight = log_ratio.clamp(low, high).exp()
    return PolicyLoss(
        per_token=-tokens.advantages * tokens.log_probs * weight,
        logged={"clip_fraction_high": log_ratio > high, "clip_fraction_low": log_ratio < low},
    )

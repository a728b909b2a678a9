"""A policy loss of your own: copy this file, edit it, and set `algorithm.loss: {type: custom, function: FILE:NAME}`."""

import math

from rl_core.algorithms.policy_loss import PolicyLoss, ResponseTokens


def truncated(tokens: ResponseTokens, *, limit: float = 2.0) -> PolicyLoss:
    """L = -A min(r, limit): importance sampling with a bounded weight and no clip from below.

    `tokens` are the response tokens of a micro-batch, K in all, one whole response after the other: tensors [K] of
    log-probs under the policy (with gradient) and under the one that sampled, advantages [K], and each response's
    length. Keyword arguments come from `algorithm.loss.kwargs`.
    """
    log_limit = math.log(limit)
    ratio = tokens.log_ratio.clamp(max=log_limit).exp()  # clamped before exp: no token overflows
    return PolicyLoss(
        per_token=-tokens.advantages * ratio,  # `algorithm.loss_avg_mode` makes one number of it
        logged={"truncated_share": tokens.log_ratio > log_limit},  # becomes the metric actor/truncated_share
    )

"""Estimators of the KL divergence from one sampled token's log-probs."""

import torch

MAX_LOG_RATIO = 20.0
MAX_KL = 10.0


def low_variance_kl(log_probs: torch.Tensor, ref_log_probs: torch.Tensor) -> torch.Tensor:
    """Schulman's k3: exp(k) - k - 1 with k = ref - policy (http://joschu.net/blog/kl-approx.html).

    Unbiased and never negative. k is clamped to +-20 and the result to +-10, as in the published VLM baselines.

    Args:
        log_probs: [K] float, under the policy; the gradient flows through it.
        ref_log_probs: [K] float, under the frozen reference.

    Returns:
        [K] float.
    """
    k = (ref_log_probs - log_probs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (k.exp() - k - 1.0).clamp(-MAX_KL, MAX_KL)

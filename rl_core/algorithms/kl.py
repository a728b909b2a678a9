"""Estimators of KL(policy || reference) from the log-probs of sampled tokens (http://joschu.net/blog/kl-approx.html),
and the weight of a KL term that follows a target.

All estimators take [K] float log-probs under the policy, through which the gradient flows, and under the frozen
reference, and return [K] float.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import torch

MAX_LOG_RATIO = 20.0
MAX_KL = 10.0
_MAX_ERROR: Final = 0.2
"""The relative error of a step's KL is clipped to this range on both sides."""

KLEstimator = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def log_ratio_kl(log_probs: torch.Tensor, ref_log_probs: torch.Tensor) -> torch.Tensor:
    """Schulman's k1: policy - ref. Unbiased; may be negative; as a loss its gradient is zero on average."""
    return log_probs - ref_log_probs


def absolute_log_ratio(log_probs: torch.Tensor, ref_log_probs: torch.Tensor) -> torch.Tensor:
    """|policy - ref|."""
    return (log_probs - ref_log_probs).abs()


def half_squared_log_ratio(log_probs: torch.Tensor, ref_log_probs: torch.Tensor) -> torch.Tensor:
    """Schulman's k2: (policy - ref)^2 / 2. Biased, but its gradient is the gradient of the KL."""
    return 0.5 * (log_probs - ref_log_probs).square()


def low_variance_kl(log_probs: torch.Tensor, ref_log_probs: torch.Tensor) -> torch.Tensor:
    """Schulman's k3: exp(k) - k - 1 with k = ref - policy.

    Unbiased and never negative. k is clamped to +-20 and the result to +-10, as in the published VLM baselines.
    """
    k = (ref_log_probs - log_probs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (k.exp() - k - 1.0).clamp(-MAX_KL, MAX_KL)


KL_ESTIMATORS: Final[Mapping[str, KLEstimator]] = MappingProxyType(
    {
        "kl": log_ratio_kl,
        "abs": absolute_log_ratio,
        "mse": half_squared_log_ratio,
        "low_var_kl": low_variance_kl,
    }
)
"""By the name in `algorithm.kl.penalty`."""


def adapted_coef(coef: float, *, kl: float, samples: int, target: float, horizon: float) -> float:
    """The weight of the next step's KL term, after a step of `samples` rollouts whose mean KL was `kl`: higher while
    the KL is above its target, lower while it is below (Ziegler et al. 2019, arXiv 1909.08593, section 2.2).

    Args:
        target: The KL to hold, nats per token.
        horizon: Samples over which the weight may change by a factor of about 1.2. Planning refuses steps with more
            samples: the weight would jump, and with five times as many it could become negative.
    """
    error = min(max(kl / target - 1.0, -_MAX_ERROR), _MAX_ERROR)
    return coef * (1.0 + error * samples / horizon)

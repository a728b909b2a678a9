"""The algorithms by the names that the configuration uses."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rl_core.algorithms.cispo import cispo_policy_loss
from rl_core.algorithms.gspo import gspo_policy_loss, gspo_token_policy_loss
from rl_core.algorithms.kl import (
    KLEstimator,
    absolute_log_ratio,
    half_squared_log_ratio,
    log_ratio_kl,
    low_variance_kl,
)
from rl_core.algorithms.policy_loss import PolicyLossFunction, clipped_policy_loss
from rl_core.algorithms.sapo import sapo_policy_loss

POLICY_LOSSES: Final[Mapping[str, PolicyLossFunction]] = MappingProxyType(
    {
        "default": clipped_policy_loss,
        "gspo": gspo_policy_loss,
        "gspo_token": gspo_token_policy_loss,
        "cispo": cispo_policy_loss,
        "sapo": sapo_policy_loss,
    }
)

KL_ESTIMATORS: Final[Mapping[str, KLEstimator]] = MappingProxyType(
    {
        "kl": log_ratio_kl,
        "abs": absolute_log_ratio,
        "mse": half_squared_log_ratio,
        "low_var_kl": low_variance_kl,
    }
)

"""The KL estimators by the names that the configuration uses."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rl_core.algorithms.kl import (
    KLEstimator,
    absolute_log_ratio,
    half_squared_log_ratio,
    log_ratio_kl,
    low_variance_kl,
)

KL_ESTIMATORS: Final[Mapping[str, KLEstimator]] = MappingProxyType(
    {
        "kl": log_ratio_kl,
        "abs": absolute_log_ratio,
        "mse": half_squared_log_ratio,
        "low_var_kl": low_variance_kl,
    }
)

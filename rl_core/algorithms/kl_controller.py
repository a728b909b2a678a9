"""Controllers of the weight of the KL term: after a step, `after` returns the controller of the next step."""

from dataclasses import dataclass, replace
from typing import Self

MAX_ERROR = 0.2
"""The relative error of a step's KL is clipped to this range on both sides."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FixedKLController:
    """Keeps the weight."""

    coef: float

    def after(self, *, kl: float, samples: int) -> Self:
        """Unchanged."""
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaptiveKLController:
    """Raises the weight while the KL is above its target, and lowers it while the KL is below (Ziegler et al. 2019,
    arXiv 1909.08593, section 2.2).

    Attributes:
        coef: The weight of this step's KL term.
        target: The KL to hold, nats per token.
        horizon: Samples over which the weight may change by a factor of about 1.2. Planning refuses steps with more
            samples: the weight would jump, and with five times as many it could become negative.
    """

    coef: float
    target: float
    horizon: float

    def after(self, *, kl: float, samples: int) -> Self:
        """After a step of `samples` rollouts whose mean KL was `kl`."""
        error = min(max(kl / self.target - 1.0, -MAX_ERROR), MAX_ERROR)
        return replace(self, coef=self.coef * (1.0 + error * samples / self.horizon))


KLController = FixedKLController | AdaptiveKLController

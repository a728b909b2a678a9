"""Controllers of the weight of the KL term."""

from dataclasses import dataclass, replace
from typing import Protocol, Self

MAX_ERROR = 0.2
"""The relative error of a step's KL is clipped to this range on both sides."""


class KLController(Protocol):
    """Holds the weight. After a step, `after` returns the controller of the next step."""

    @property
    def coef(self) -> float:
        """The weight of this step's KL term."""

    def after(self, *, kl: float, samples: int) -> Self:
        """The controller after a step of `samples` rollouts whose mean KL was `kl`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FixedKLController:
    """Keeps the weight."""

    coef: float

    def after(self, *, kl: float, samples: int) -> Self:
        """This controller, unchanged."""
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
        """The controller after a step of `samples` rollouts whose mean KL was `kl`."""
        error = min(max(kl / self.target - 1.0, -MAX_ERROR), MAX_ERROR)
        return replace(self, coef=self.coef * (1.0 + error * samples / self.horizon))

"""The weight of the KL term, and how it follows the KL that is seen."""

from dataclasses import dataclass, replace
from typing import Protocol, Self

MAX_ERROR = 0.2
"""A step's KL, however far from the target, counts as at most this share away from it."""


class KLController(Protocol):
    """Holds the weight; a step gives the controller of the next one."""

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
        """Itself, whatever the step saw."""
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaptiveKLController:
    """Raises the weight while the KL is above its target, lowers it while below (Ziegler et al. 2019, arXiv
    1909.08593, section 2.2).

    Attributes:
        coef: The weight of this step's KL term.
        target: The KL to hold, nats a token.
        horizon: Samples over which the weight may change by a factor of about 1.2; no step has more (planning refuses
            it), or the weight would jump, and from five times as many on fall below zero.
    """

    coef: float
    target: float
    horizon: float

    def after(self, *, kl: float, samples: int) -> Self:
        """The controller after a step of `samples` rollouts whose mean KL was `kl`."""
        error = min(max(kl / self.target - 1.0, -MAX_ERROR), MAX_ERROR)
        return replace(self, coef=self.coef * (1.0 + error * samples / self.horizon))

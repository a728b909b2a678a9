"""Metrics of an update, averaged with the loss's own weights."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from rl_core.training.optimizer import StepOutcome


class TokenMeans:
    """Sums weighted token values over micro-batches; the mean is over the optimizer batches of a step.

    The weights are those of the loss, divided by their sum over the step, so a metric means the same for every
    micro-batch size. They sum to one over an optimizer batch, so that all batches count alike; with `seq_sum_norm`
    (Dr. GRPO) they sum to its mean response length over the longest one, and batches count by their tokens.
    """

    def __init__(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        self._weight: torch.Tensor = torch.zeros(())
        self.constants: dict[str, float] = {}

    def add(self, per_token: Mapping[str, torch.Tensor], weights: torch.Tensor) -> None:
        """Add a micro-batch: [K] values a name, [K] weights."""
        for name, values in per_token.items():
            weighted = (values.detach() * weights).sum().cpu()
            self._sums[name] = self._sums.get(name, torch.zeros(())) + weighted
        self._weight = self._weight + weights.sum().cpu()

    def result(self) -> dict[str, float]:
        """The means and the constants."""
        return {name: float(total / self._weight) for name, total in self._sums.items()} | self.constants


def optimizer_metrics(owner: str, outcomes: Sequence[StepOutcome]) -> dict[str, float]:
    """What the optimizer steps of an update report, under `<owner>/`: mean gradient norm, last rate, steps skipped."""
    return {
        f"{owner}/grad_norm": float(np.mean([outcome.grad_norm for outcome in outcomes])),
        f"{owner}/lr": outcomes[-1].lr,
        f"{owner}/skipped_optimizer_steps": float(sum(not outcome.applied for outcome in outcomes)),
    }

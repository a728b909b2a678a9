"""From what an update reports to the metrics of its step."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import fsum, isfinite

import numpy as np

from rl_core.training.batches import OptimizerStepReport, TokenSums, UpdateResult


def update_metrics(result: UpdateResult) -> dict[str, float]:
    """Means over the tokens, and what the optimizers and the comparison with the generator report."""
    metrics: dict[str, float] = {}
    for owner, reports in (("actor", result.policy), ("critic", result.critic)):
        if reports:
            metrics |= token_means(sums for report in reports for sums in report.tokens)
            metrics |= _optimizer_metrics(owner, reports)
    if result.gaps is not None and result.gaps.count:
        metrics["agreement/log_prob_gap_max"] = result.gaps.largest
        metrics["agreement/log_prob_gap_mean"] = result.gaps.mean
    return metrics


def token_means(parts: Iterable[TokenSums]) -> dict[str, float]:
    """The mean of each metric over the tokens of a step, weighted as in the loss.

    The sums are added exactly (`math.fsum`), so that the means do not depend on who computed which group, nor on the
    order. The weights are divided by their sum over the step. They sum to one over an optimizer batch, so that all
    batches count alike; with `seq_sum_norm` (Dr. GRPO) they sum to its mean response length over the longest one, and
    batches count by their tokens.
    """
    sums: dict[str, list[float]] = defaultdict(list)
    weights: list[float] = []
    for part in parts:
        weights += part.weights
        for name, values in part.sums.items():
            sums[name] += values
    return {name: _total(values) / _total(weights) for name, values in sums.items()}


def _total(values: Sequence[float]) -> float:
    """The exact sum; infinities of both signs, of a step that diverges, come to nan."""
    return fsum(values) if all(map(isfinite, values)) else sum(values)


def _optimizer_metrics(owner: str, reports: Sequence[OptimizerStepReport]) -> dict[str, float]:
    """Mean gradient norm, last rate, and steps that were skipped."""
    outcomes = [report.outcome for report in reports]
    return {
        f"{owner}/grad_norm": float(np.mean([outcome.grad_norm for outcome in outcomes])),
        f"{owner}/lr": outcomes[-1].lr,
        f"{owner}/skipped_optimizer_steps": float(sum(not outcome.applied for outcome in outcomes)),
    }

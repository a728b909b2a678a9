"""Advantage estimators behind one signature: from the token rewards of a rollout batch to an advantage a token."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Final

import numpy as np

from rl_core.algorithms.group_advantages import (
    Rewards,
    dr_grpo_advantages,
    grpo_advantages,
    grpo_passk_advantages,
    remax_advantages,
    rloo_advantages,
)
from rl_core.algorithms.token_advantages import TokenValues, discounted_returns, generalized_advantages, whiten

Grouped = Sequence[Sequence[TokenValues]]
"""[group][rollout] -> [R] float64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvantageInputs:
    """What an estimator may look at.

    Attributes:
        token_rewards: [group][rollout] -> [R] float64. The score sits on the last token; a KL penalty on each.
        gamma: Discount a token.
        greedy_rewards: [group] reward of each prompt's greedy response; empty but for ReMax.
        values: [group][rollout] -> [R] float64, the critic's value before each token; empty but for GAE.
        lam: Decay of GAE: 0 trusts the critic, 1 the returns.
    """

    token_rewards: Grouped
    gamma: float
    greedy_rewards: Sequence[float] = ()
    values: Grouped = ()
    lam: float = 1.0


AdvantageEstimator = Callable[[AdvantageInputs], Grouped]


def by_group(group_advantages: Callable[[Rewards], Rewards]) -> AdvantageEstimator:
    """The estimator that gives every token of a rollout its advantage over the others of its group."""

    def estimate(inputs: AdvantageInputs) -> Grouped:
        return [_broadcast(group_advantages(_totals(group)), group) for group in inputs.token_rewards]

    return estimate


def reinforce_plus_plus(inputs: AdvantageInputs) -> Grouped:
    """REINFORCE++ (arXiv 2501.03262): discounted returns, whitened over the rollout batch; no group baseline."""
    returns = [[discounted_returns(r, gamma=inputs.gamma) for r in group] for group in inputs.token_rewards]
    return _whitened(returns)


def reinforce_plus_plus_baseline(inputs: AdvantageInputs) -> Grouped:
    """REINFORCE++ with baseline (arXiv 2501.03262): rewards less their group's mean, whitened over the rollout batch.

    As published the whitening takes the batch's token mean off, so that among other groups one without a signal may
    keep a small common advantage; alone it has exactly none.
    """
    return _whitened(by_group(dr_grpo_advantages)(inputs))


def remax(inputs: AdvantageInputs) -> Grouped:
    """ReMax (arXiv 2310.10505): rewards less that of the prompt's greedy response. Raises ValueError without these."""
    return [
        _broadcast(remax_advantages(_totals(group), greedy_reward=greedy), group)
        for group, greedy in zip(inputs.token_rewards, inputs.greedy_rewards, strict=True)
    ]


def gae(inputs: AdvantageInputs) -> Grouped:
    """GAE (arXiv 1506.02438) over the critic's values, whitened over the rollout batch. Raises ValueError without
    values."""
    return _whitened(_generalized(inputs))


def value_targets(inputs: AdvantageInputs) -> Grouped:
    """What the critic should have said: GAE, before it is whitened, on top of what it said. Empty without values."""
    if not inputs.values:
        return []
    return [
        [advantages + values for advantages, values in zip(*pair, strict=True)]
        for pair in zip(_generalized(inputs), inputs.values, strict=True)
    ]


ADVANTAGE_ESTIMATORS: Final[Mapping[str, AdvantageEstimator]] = MappingProxyType(
    {
        "grpo": by_group(grpo_advantages),
        "dr_grpo": by_group(dr_grpo_advantages),
        "grpo_passk": by_group(grpo_passk_advantages),
        "rloo": by_group(rloo_advantages),
        "reinforce_plus_plus": reinforce_plus_plus,
        "reinforce_plus_plus_baseline": reinforce_plus_plus_baseline,
        "remax": remax,
        "gae": gae,
    }
)


def _generalized(inputs: AdvantageInputs) -> Grouped:
    return [
        [
            generalized_advantages(rewards, values, gamma=inputs.gamma, lam=inputs.lam)
            for rewards, values in zip(*pair, strict=True)
        ]
        for pair in zip(inputs.token_rewards, inputs.values, strict=True)
    ]


def _totals(group: Sequence[TokenValues]) -> Rewards:
    return np.array([rewards.sum() for rewards in group], dtype=np.float64)


def _broadcast(advantages: Iterable[float], group: Sequence[TokenValues]) -> list[TokenValues]:
    return [np.full(len(rewards), advantage) for rewards, advantage in zip(group, advantages, strict=True)]


def _whitened(values: Grouped) -> Grouped:
    white = iter(whiten(list(chain.from_iterable(values))))
    return [[next(white) for _ in group] for group in values]

"""The interface of advantage estimators: from the token rewards of a rollout batch to an advantage for each token."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from rl_core.algorithms.section import AlgorithmSection
from rl_core.algorithms.token_advantages import TokenValues, whiten

Rewards = npt.NDArray[np.float64]
"""[n] the rewards of one group's rollouts."""

Grouped = Sequence[Sequence[TokenValues]]
"""[group][rollout] -> [R] float64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvantageInputs:
    """The inputs of an estimator."""

    token_rewards: Grouped  # the last token has the score, and every token a KL penalty if there is one
    greedy_rewards: Sequence[float] = ()  # [group] reward of each prompt's greedy response, if the estimator needs it
    values: Grouped = ()  # the critic's value before each token, if there is a critic


class AdvantageSection(AlgorithmSection):
    """An advantage estimator: its options, what it needs, and what it computes."""

    type: str

    @property
    def smallest_group(self) -> int:
        """Scored rollouts that a group must have; smaller groups are not learned from."""
        return 1

    @property
    def uses_greedy(self) -> bool:
        """Whether it needs a greedy response to each prompt."""
        return False

    @property
    def uses_critic(self) -> bool:
        """Whether it needs a critic's value of each token."""
        return False

    @abstractmethod
    def advantages(self, inputs: AdvantageInputs) -> Grouped:
        """The advantage of every token."""

    def value_targets(self, inputs: AdvantageInputs) -> Grouped:
        """The critic's targets; empty if there is no critic."""
        return []


class GroupBaseline(AdvantageSection):
    """An estimator that compares a rollout with the others of its group."""

    @property
    @override
    def smallest_group(self) -> int:
        return 2

    @abstractmethod
    def of_group(self, rewards: Rewards) -> Rewards:
        """The advantage of each rollout of one group, [n]."""

    @override
    def advantages(self, inputs: AdvantageInputs) -> Grouped:
        return [broadcast(self.of_group(totals(group)), group) for group in inputs.token_rewards]


STD_FLOOR = 1e-6
"""Added to the standard deviation, as in the published GRPO implementations."""


def has_no_signal(rewards: Rewards) -> bool:
    """Whether all rewards of a group, two or more, are equal. Such a group gets advantages of exactly zero: the
    rounding error of the mean of, say, eight 0.9 would otherwise look like a signal, and like a strong one after the
    division by 1e-6. Raises ValueError if there are fewer than two."""
    if rewards.size < 2:
        raise ValueError(f"a group baseline needs at least 2 scored rollouts, got {rewards.size}; raise rollout.n")
    return bool(np.all(rewards == rewards[0]))


def totals(group: Sequence[TokenValues]) -> Rewards:
    """[n] the reward of each rollout: the sum over its tokens."""
    return np.array([rewards.sum() for rewards in group], dtype=np.float64)


def broadcast(advantages: Iterable[float], group: Sequence[TokenValues]) -> list[TokenValues]:
    """[rollout] -> [R]: each rollout's advantage for all of its tokens."""
    return [np.full(len(rewards), advantage) for rewards, advantage in zip(group, advantages, strict=True)]


def whitened(values: Grouped) -> Grouped:
    """The values, whitened over all tokens of the rollout batch."""
    white = iter(whiten(list(chain.from_iterable(values))))
    return [[next(white) for _ in group] for group in values]

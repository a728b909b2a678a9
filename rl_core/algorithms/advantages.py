"""What an advantage estimator takes and gives: from the token rewards of a rollout batch to an advantage a token."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from rl_core.algorithms.section import AlgorithmSection
from rl_core.algorithms.token_advantages import TokenValues, whiten

Rewards = npt.NDArray[np.float64]
"""[n] the rewards of one group's rollouts."""

Grouped = Sequence[Sequence[TokenValues]]
"""[group][rollout] -> [R] float64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvantageInputs:
    """What an estimator may look at.

    Attributes:
        token_rewards: [group][rollout] -> [R] float64. The score sits on the last token; a KL penalty on each.
        greedy_rewards: [group] reward of each prompt's greedy response; empty where the estimator draws none.
        values: [group][rollout] -> [R] float64, the critic's value before each token; empty without a critic.
    """

    token_rewards: Grouped
    greedy_rewards: Sequence[float] = ()
    values: Grouped = ()


class AdvantageSection(AlgorithmSection):
    """An advantage estimator: its options, what it needs, and what it computes."""

    type: str
    """Selects the estimator."""

    @property
    def smallest_group(self) -> int:
        """Scored rollouts that a group needs; smaller groups are not learned from."""
        return 1

    @property
    def uses_greedy(self) -> bool:
        """Whether one greedy response more is drawn for each prompt."""
        return False

    @property
    def uses_critic(self) -> bool:
        """Whether a critic values every token."""
        return False

    @abstractmethod
    def advantages(self, inputs: AdvantageInputs) -> Grouped:
        """The advantage of every token."""

    def value_targets(self, inputs: AdvantageInputs) -> Grouped:
        """What the critic should have said; empty without one."""
        return []


class GroupBaseline(AdvantageSection):
    """An estimator that compares a rollout with the others of its group."""

    @property
    def smallest_group(self) -> int:
        """Two: a rollout and another."""
        return 2

    @abstractmethod
    def of_group(self, rewards: Rewards) -> Rewards:
        """The advantage of each rollout of one group, [n]."""

    def advantages(self, inputs: AdvantageInputs) -> Grouped:
        """Every token of a rollout has its rollout's advantage."""
        return [broadcast(self.of_group(totals(group)), group) for group in inputs.token_rewards]


def totals(group: Sequence[TokenValues]) -> Rewards:
    """[n] the reward of each rollout: the sum over its tokens."""
    return np.array([rewards.sum() for rewards in group], dtype=np.float64)


def broadcast(advantages: Iterable[float], group: Sequence[TokenValues]) -> list[TokenValues]:
    """[rollout] -> [R]: each rollout's advantage at all of its tokens."""
    return [np.full(len(rewards), advantage) for rewards, advantage in zip(group, advantages, strict=True)]


def whitened(values: Grouped) -> Grouped:
    """The values, whitened over all tokens of the rollout batch."""
    white = iter(whiten(list(chain.from_iterable(values))))
    return [[next(white) for _ in group] for group in values]

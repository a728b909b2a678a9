"""The interface of group filters, which choose the groups to learn from."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from rl_core.algorithms.section import AlgorithmSection

GroupScores = Mapping[str, npt.NDArray[np.float64]]
"""Reward component -> [n] its values for the scored rollouts of a group. A component that one of them does not have is
left out."""


def group_scores(components: Sequence[Mapping[str, float]]) -> GroupScores:
    """The scores of one group, from the components of each rollout."""
    common = [name for name in components[0] if all(name in found for found in components)]
    return {name: np.array([found[name] for found in components], dtype=np.float64) for name in common}


class GroupFilterSection(AlgorithmSection):
    """A group filter: its options, its rule, and how more prompts are drawn until the batch is full."""

    type: str
    mini_rollout_batch_size: int | None = Field(default=None, ge=1)
    """Prompts in a draw; null takes data.rollout_batch_size."""
    max_try_make_batch: int = Field(default=20, ge=1)
    """Most draws in a step; the run stops if they do not fill the batch."""
    surplus: Literal["discard", "keep"] = "discard"
    """What happens to the groups of a draw behind the one that fills the batch: `discard` ends the generation there,
    `keep` learns from those that pass the filter in the next step."""

    @property
    def component(self) -> str | None:
        """The reward component that the filter needs, which `filter_key` names; None if it needs none."""
        return None

    @property
    @abstractmethod
    def wants(self) -> str:
        """The property of the groups that it keeps, in words."""

    @abstractmethod
    def keeps(self, scores: GroupScores) -> bool:
        """Whether a group is learned from."""

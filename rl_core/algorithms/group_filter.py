"""What a group filter takes and gives: which groups are worth learning from."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from rl_core.algorithms.section import AlgorithmSection

GroupScores = Mapping[str, npt.NDArray[np.float64]]
"""Reward component -> [n] its value for each scored rollout of a group. Components that one of them lacks are left
out."""


def group_scores(components: Sequence[Mapping[str, float]]) -> GroupScores:
    """The scores of one group, from the components of each rollout."""
    common = [name for name in components[0] if all(name in found for found in components)]
    return {name: np.array([found[name] for found in components], dtype=np.float64) for name in common}


class GroupFilterSection(AlgorithmSection):
    """A group filter: its options, what it keeps, and how further prompts are drawn until the batch is full."""

    type: str
    """Selects the filter."""
    mini_rollout_batch_size: int | None = Field(default=None, ge=1)
    """Prompts a draw: small draws throw fewer groups away once the batch is full, and keep the engine less busy. Null
    draws data.rollout_batch_size."""
    max_try_make_batch: int = Field(default=20, ge=1)
    """Draws of mini_rollout_batch_size prompts a step; the run stops when they do not fill the batch."""
    surplus: Literal["discard", "keep"] = "discard"
    """What becomes of such groups above the batch's size: `keep` learns from them in the next step, their engine
    log-probs as old ones, and drops them after it."""

    @property
    def component(self) -> str | None:
        """The reward component that it cannot do without, and that `filter_key` names; None for none."""
        return None

    @property
    @abstractmethod
    def wants(self) -> str:
        """What the groups have that it keeps, in words."""

    @abstractmethod
    def keeps(self, scores: GroupScores) -> bool:
        """Whether a group is learned from."""

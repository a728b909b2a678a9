"""An advantage estimator of the user's."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from rl_core.algorithms.advantages import AdvantageInputs, AdvantageSection, Grouped
from rl_core.algorithms.custom import CustomFunction


class CustomAdvantage(CustomFunction, AdvantageSection):
    """An estimator of your own: `f(inputs: AdvantageInputs, **kwargs)` gives one array of [R] float64 a rollout,
    `[group][rollout]` as `inputs.token_rewards` (rl_core/algorithms/advantages.py)."""

    type: Literal["custom"] = "custom"
    """Selects a function of your own."""
    min_group: int = Field(default=2, ge=1)
    """Scored rollouts that a group needs; smaller groups are not learned from. 1 for an estimator that compares no
    rollout with the others of its group."""

    @property
    def smallest_group(self) -> int:
        """As the config says."""
        return self.min_group

    def advantages(self, inputs: AdvantageInputs) -> Grouped:
        """What the function says.

        Raises:
            ValueError: it raised, or gave something else than a finite number for each token.
        """
        given = self.call(inputs)
        wanted = [[len(rewards) for rewards in group] for group in inputs.token_rewards]
        if _lengths(given) != wanted:
            raise ValueError(
                f"{self.function} must give one array a rollout, [group][rollout] as inputs.token_rewards, with one "
                f"number a token: lengths {wanted[:2]}, ...; it gave {_lengths(given) or type(given).__name__}"
            )
        advantages = [[np.asarray(part, dtype=np.float64) for part in group] for group in given]
        if not all(np.isfinite(part).all() for group in advantages for part in group):
            raise ValueError(f"{self.function} gave an advantage that is no finite number")
        return advantages


def _lengths(given: object) -> list[list[int]] | None:
    """[group][rollout] tokens; None for what is no such thing."""
    if not isinstance(given, Sequence) or not all(isinstance(group, Sequence) for group in given):
        return None
    shapes = [[np.shape(part) for part in group] for group in given]
    if any(len(shape) != 1 for group in shapes for shape in group):
        return None
    return [[shape[0] for shape in group] for group in shapes]

"""A user's advantage estimator."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from rl_core.algorithms.advantages import AdvantageInputs, AdvantageSection, Grouped
from rl_core.algorithms.custom import CustomFunction


class CustomAdvantage(CustomFunction, AdvantageSection):
    """An estimator of your own: `f(inputs: AdvantageInputs, **kwargs)` returns one array of [R] float64 for each
    rollout, `[group][rollout]` like `inputs.token_rewards` (rl_core/algorithms/advantages.py)."""

    type: Literal["custom"] = "custom"
    min_group: int = Field(default=2, ge=1)
    """Scored rollouts that a group must have; smaller groups are not learned from."""

    @property
    @override
    def smallest_group(self) -> int:
        return self.min_group

    def advantages(self, inputs: AdvantageInputs) -> Grouped:
        """Raises ValueError if the function raised an exception, or did not return a finite number for each token."""
        given = self.call(inputs)
        wanted = [[len(rewards) for rewards in group] for group in inputs.token_rewards]
        if _lengths(given) != wanted:
            raise ValueError(
                f"{self.function} must return one array for each rollout, [group][rollout] like inputs.token_rewards, "
                f"with one number for each token: lengths {wanted[:2]}, ...; it returned "
                f"{_lengths(given) or type(given).__name__}"
            )
        advantages = [[np.asarray(part, dtype=np.float64) for part in group] for group in given]
        if not all(np.isfinite(part).all() for group in advantages for part in group):
            raise ValueError(f"{self.function} returned an advantage that is not a finite number")
        return advantages


def _lengths(given: object) -> list[list[int]] | None:
    """[group][rollout] number of tokens; None if the object does not have this form."""
    if not isinstance(given, Sequence) or not all(isinstance(group, Sequence) for group in given):
        return None
    shapes = [[np.shape(part) for part in group] for group in given]
    if any(len(shape) != 1 for group in shapes for shape in group):
        return None
    return [[shape[0] for shape in group] for group in shapes]

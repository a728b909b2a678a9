"""ReMax: the reward minus the reward of the prompt's greedy response (arXiv 2310.10505)."""

from typing import Literal

import numpy as np
from typing_extensions import override

from rl_core.algorithms.advantages import AdvantageInputs, AdvantageSection, Grouped, broadcast, totals


class ReMax(AdvantageSection):
    """ReMax (arXiv 2310.10505): the reward minus the reward of the prompt's greedy response, which is generated in
    addition."""

    type: Literal["remax"] = "remax"

    @property
    @override
    def uses_greedy(self) -> bool:
        return True

    def advantages(self, inputs: AdvantageInputs) -> Grouped:
        """A_i = r_i - the reward of the prompt's greedy response. Raises ValueError if there are no greedy rewards."""
        return [
            broadcast(np.asarray(totals(group) - greedy), group)
            for group, greedy in zip(inputs.token_rewards, inputs.greedy_rewards, strict=True)
        ]

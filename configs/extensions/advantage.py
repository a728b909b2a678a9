"""An advantage estimator of your own: copy this file, edit it, and set
`algorithm.advantage: {type: custom, function: FILE:NAME}`."""

import numpy as np

from rl_core.algorithms.advantages import AdvantageInputs, Grouped


def above_median(inputs: AdvantageInputs, *, scale: float = 1.0) -> Grouped:
    """A_i = scale (r_i - median(r)): one wild reward of a group does not move the others' advantages.

    `inputs.token_rewards[group][rollout]` is [R] float64, a reward for each token: the score sits on the last one. What
    comes back has the same shape. Keyword arguments come from `algorithm.advantage.kwargs`.
    """
    advantages = []
    for group in inputs.token_rewards:
        rewards = np.array([tokens.sum() for tokens in group])
        centred = scale * (rewards - np.median(rewards))
        advantages.append([np.full(len(tokens), value) for tokens, value in zip(group, centred, strict=True)])
    return advantages

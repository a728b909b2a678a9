"""Advantages relative to the other rollouts of the same prompt.

A group whose rewards are all equal gets exactly zero from each of them: rounding in the mean of, say, eight 0.9 would
otherwise look like a signal, and divided by 1e-6 like a strong one.
"""

import numpy as np
import numpy.typing as npt

Rewards = npt.NDArray[np.float64]

STD_FLOOR = 1e-6
"""Added to the standard deviation, as in the published GRPO implementations."""


def grpo_advantages(rewards: Rewards) -> Rewards:
    """GRPO: each reward's distance from its group's mean, in units of the group's spread.

    A_i = (r_i - mean(r)) / (std(r) + 1e-6) with the unbiased standard deviation (DeepSeekMath, arXiv 2402.03300,
    section 4.1.2).

    Args:
        rewards: [n] float64, `overall` of one group's rollouts, n >= 2.

    Returns:
        [n] float64.

    Raises:
        ValueError: fewer than two rewards, which have no spread.
    """
    if _has_no_signal(rewards):
        return np.zeros_like(rewards)
    return np.asarray((rewards - rewards.mean()) / (rewards.std(ddof=1) + STD_FLOOR))


def dr_grpo_advantages(rewards: Rewards) -> Rewards:
    """Dr. GRPO: A_i = r_i - mean(r), so that easy and hard prompts keep their weight (arXiv 2503.20783, section 3.2).

    Arguments, result and errors as for `grpo_advantages`.
    """
    if _has_no_signal(rewards):
        return np.zeros_like(rewards)
    return np.asarray(rewards - rewards.mean())


def rloo_advantages(rewards: Rewards) -> Rewards:
    """RLOO: A_i = r_i - mean of the others, an unbiased baseline (arXiv 2402.14740).

    Arguments, result and errors as for `grpo_advantages`.
    """
    if _has_no_signal(rewards):
        return np.zeros_like(rewards)
    return np.asarray(rewards - (rewards.sum() - rewards) / (rewards.size - 1))


def grpo_passk_advantages(rewards: Rewards) -> Rewards:
    """Pass@k GRPO: only the best rollout is credited, with its lead over the second (arXiv 2503.19595).

    A_best = (r_best - r_second) / (std(r) + 1e-6), the others zero; the first of several best ones counts as the best.
    Arguments, result and errors as for `grpo_advantages`.
    """
    advantages = np.zeros_like(rewards)
    if _has_no_signal(rewards):
        return advantages
    second, best = np.partition(rewards, -2)[-2:]
    advantages[rewards.argmax()] = (best - second) / (rewards.std(ddof=1) + STD_FLOOR)
    return advantages


def remax_advantages(rewards: Rewards, *, greedy_reward: float) -> Rewards:
    """ReMax: A_i = r_i - the reward of the prompt's greedy response (arXiv 2310.10505).

    Args:
        rewards: [n] float64, n >= 1.
        greedy_reward: `overall` of the response drawn at temperature 0.

    Returns:
        [n] float64.
    """
    return np.asarray(rewards - greedy_reward)


def _has_no_signal(rewards: Rewards) -> bool:
    if rewards.size < 2:
        raise ValueError(f"a group baseline needs at least 2 scored rollouts, got {rewards.size}; raise rollout.n")
    return bool(np.all(rewards == rewards[0]))

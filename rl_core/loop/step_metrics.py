"""Metrics of a step's rollouts and rewards: functions of config, data and seed only."""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from rl_core.algorithms.advantages import Grouped
from rl_core.algorithms.token_advantages import TokenValues
from rl_core.types import Group, RolloutKey, Score

_EXPLAINED_FLOOR = 1e-5  # as in EasyR1: returns that are all equal leave nothing to foresee

_OWN_NAMES = frozenset({"failed", "greedy", "group_std", "zero_std_groups"})
"""The metrics `reward/NAME` that are not means of a component."""


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Lengths in tokens, and the share of responses cut at the limit."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    lengths = np.array([len(rollout.response_ids) for rollout in rollouts])
    prompts = np.array([len(group.prompt.token_ids) for group in groups])
    return {
        "response_length/mean": float(lengths.mean()),
        "response_length/max": float(lengths.max()),
        "response_length/min": float(lengths.min()),
        "response_length/clip_ratio": float(np.mean([rollout.finish_reason == "length" for rollout in rollouts])),
        "prompt_length/mean": float(prompts.mean()),
        "prompt_length/max": float(prompts.max()),
    }


def reward_metrics(groups: Sequence[Group], scores: Mapping[RolloutKey, Score]) -> dict[str, float]:
    """Mean of each component over the scored rollouts, failures, and the share of groups without a signal."""
    good = [score for score in scores.values() if score.error is None]
    means = component_means(good)
    spreads = [_spread(group, scores) for group in groups]
    return means | {
        "reward/failed": float(len(scores) - len(good)),
        "reward/group_std": float(np.mean(spreads)) if spreads else 0.0,
        "reward/zero_std_groups": float(np.mean([spread == 0.0 for spread in spreads])) if spreads else 0.0,
    }


def component_means(good: Sequence[Score]) -> dict[str, float]:
    """The mean of each component over the scores.

    A component that every score has is `reward/NAME`, or `reward/NAME/mean` if `reward/NAME` is a metric of this
    project. A component that only some scores have is `reward/NAME/mean_where_given` and `reward/NAME/given_share`,
    because its mean must not be taken for a mean over all scores.
    """
    means = {}
    for name in sorted({name for score in good for name in score.components}):
        given = [score.components[name] for score in good if name in score.components]
        if len(given) == len(good):
            means[f"reward/{name}/mean" if name in _OWN_NAMES else f"reward/{name}"] = float(np.mean(given))
        else:
            means[f"reward/{name}/mean_where_given"] = float(np.mean(given))
            means[f"reward/{name}/given_share"] = len(given) / len(good)
    return means


def critic_metrics(values: Grouped, returns: Grouped) -> dict[str, float]:
    """What the critic expected and what came, over all tokens, and the share of the returns' variance that it foresaw;
    nothing without a critic. Both are [group][rollout] -> [R]."""
    if not values:
        return {}
    expected, found = (np.concatenate(list(chain.from_iterable(part))) for part in (values, returns))
    unexplained = (found - expected).var() / (found.var() + _EXPLAINED_FLOOR)
    return {
        **_spread_of("critic/values", expected),
        **_spread_of("critic/returns", found),
        "critic/vf_explained_var": float(1.0 - unexplained),
    }


def _spread_of(name: str, tokens: TokenValues) -> dict[str, float]:
    return {
        f"{name}/mean": float(tokens.mean()),
        f"{name}/max": float(tokens.max()),
        f"{name}/min": float(tokens.min()),
    }


def _spread(group: Group, scores: Mapping[RolloutKey, Score]) -> float:
    values = [scores[r.key].overall for r in group.rollouts]
    return 0.0 if min(values) == max(values) else float(np.std(values))

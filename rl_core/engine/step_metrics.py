"""Metrics of a step's rollouts and rewards: functions of config, data and seed only."""

from collections.abc import Mapping, Sequence

import numpy as np

from rl_core.types import Group, RolloutKey, Score


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
    names = sorted({name for score in good for name in score.components})
    means = {
        f"reward/{name}": float(np.mean([s.components[name] for s in good if name in s.components])) for name in names
    }
    spreads = [_spread(group, scores) for group in groups]
    return means | {
        "reward/failed": float(len(scores) - len(good)),
        "reward/group_std": float(np.mean(spreads)) if spreads else 0.0,
        "reward/zero_std_groups": float(np.mean([spread == 0.0 for spread in spreads])) if spreads else 0.0,
    }


def _component_mean(scores: Sequence[Score], name: str) -> float:
    return float(np.mean([score.components[name] for score in scores if name in score.components]))


def _spread(group: Group, scores: Mapping[RolloutKey, Score]) -> float:
    values = [scores[r.key].overall for r in group.rollouts]
    return 0.0 if min(values) == max(values) else float(np.std(values))

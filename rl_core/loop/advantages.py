"""From scored groups to the samples of an update."""

from collections.abc import Mapping, Sequence

import numpy as np

from rl_core.algorithms.advantages import AdvantageInputs, Grouped
from rl_core.algorithms.token_advantages import TokenValues
from rl_core.config.algorithm import AlgorithmConfig
from rl_core.types import Float32Array, Group, RolloutKey, Score, TrainGroup, TrainSample

TokenArrays = Sequence[Sequence[Float32Array]]
"""[group][rollout] -> [R] float32."""


def scored_groups(
    groups: Sequence[Group], scores: Mapping[RolloutKey, Score], *, config: AlgorithmConfig
) -> list[Group]:
    """Leave out rollouts without a score, and groups of which too few are left: fewer than the two that a group
    baseline compares (docs/architecture.md, "Bad input is named")."""
    kept = [Group(prompt=g.prompt, rollouts=[r for r in g.rollouts if not scores[r.key].error]) for g in groups]
    return [group for group in kept if len(group.rollouts) >= config.advantage.smallest_group]


def advantage_inputs(
    groups: Sequence[Group],
    scores: Mapping[RolloutKey, Score],
    *,
    kl_penalties: Grouped | None,
    greedy_rewards: Mapping[str, float],
    values: TokenArrays,
) -> AdvantageInputs:
    """What the estimator looks at.

    Args:
        groups: The rollout batch: groups whose rollouts all have a score.
        scores: By (prompt uid, sample index).
        kl_penalties: [group][rollout] -> [R] what the KL takes off each token's reward; None for nothing.
        greedy_rewards: By prompt uid the reward of the greedy response; empty where the estimator
            draws none.
        values: [group][rollout] -> [R] the critic's values; empty without one.
    """
    rewards = [[_token_rewards(len(r.response_ids), scores[r.key].overall) for r in g.rollouts] for g in groups]
    if kl_penalties is not None:
        rewards = [
            [reward - penalty for reward, penalty in zip(*pair, strict=True)]
            for pair in zip(rewards, kl_penalties, strict=True)
        ]
    greedy = [greedy_rewards[group.prompt.uid] for group in groups] if greedy_rewards else []
    return AdvantageInputs(
        token_rewards=rewards,
        greedy_rewards=greedy,
        values=[[part.astype(np.float64) for part in group] for group in values],
    )


def train_groups(
    groups: Sequence[Group],
    *,
    advantages: Grouped,
    old: TokenArrays,
    ref: TokenArrays | None,
    importance_weights: Grouped | None,
    values: TokenArrays = (),
    returns: Grouped = (),
) -> list[TrainGroup]:
    """The groups with what the losses need of each token; all arguments are [group][rollout] -> [R], the last two empty
    without a critic."""
    return [
        TrainGroup(
            prompt=group.prompt,
            samples=[
                TrainSample(
                    rollout=rollout,
                    advantages=advantages[i][j].astype(np.float32),
                    old_log_probs=old[i][j],
                    ref_log_probs=ref[i][j] if ref else None,
                    importance_weights=importance_weights[i][j].astype(np.float32) if importance_weights else None,
                    values=values[i][j] if values else None,
                    returns=returns[i][j].astype(np.float32) if returns else None,
                )
                for j, rollout in enumerate(group.rollouts)
            ],
        )
        for i, group in enumerate(groups)
    ]


def _token_rewards(length: int, score: float) -> TokenValues:
    """The score sits on the last token."""
    rewards = np.zeros(length)
    rewards[-1] = score
    return rewards

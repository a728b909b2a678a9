"""From scored groups to the samples of an update."""

from collections.abc import Mapping, Sequence

import numpy as np

from rl_core.algorithms.group_advantages import grpo_advantages
from rl_core.types import Float32Array, Group, RolloutKey, Score, TrainGroup, TrainSample


def scored_groups(groups: Sequence[Group], scores: Mapping[RolloutKey, Score]) -> list[Group]:
    """Leave out rollouts without a score, and groups of which fewer than two are left (design contract 8)."""
    kept = [Group(prompt=g.prompt, rollouts=[r for r in g.rollouts if not scores[r.key].error]) for g in groups]
    return [group for group in kept if len(group.rollouts) >= 2]


def assign_advantages(
    groups: Sequence[Group],
    scores: Mapping[RolloutKey, Score],
    *,
    old: Sequence[Sequence[Float32Array]],
    ref: Sequence[Sequence[Float32Array]] | None,
) -> list[TrainGroup]:
    """Give every response token its rollout's group-relative advantage.

    Args:
        groups: Groups whose rollouts all have a score.
        scores: By (prompt uid, sample index).
        old: [group][rollout] -> [R] log-probs under the policy that sampled.
        ref: The same under the reference, or None.
    """
    return [_train_group(group, scores, old[i], None if ref is None else ref[i]) for i, group in enumerate(groups)]


def _train_group(
    group: Group,
    scores: Mapping[RolloutKey, Score],
    old: Sequence[Float32Array],
    ref: Sequence[Float32Array] | None,
) -> TrainGroup:
    rewards = np.array([scores[r.key].overall for r in group.rollouts], dtype=np.float64)
    samples = [
        TrainSample(
            rollout=rollout,
            advantages=np.full(len(rollout.response_ids), advantage, dtype=np.float32),
            old_log_probs=old[i],
            ref_log_probs=None if ref is None else ref[i],
        )
        for i, (rollout, advantage) in enumerate(zip(group.rollouts, grpo_advantages(rewards), strict=True))
    ]
    return TrainGroup(prompt=group.prompt, samples=samples)
